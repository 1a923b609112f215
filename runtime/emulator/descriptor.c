/* Matrix descriptors: see descriptor.h. With S the swizzle's span in bytes and 8 x S bytes an atom:
 *
 *   bits 0-13 start address / 16   16-29 leading offset / 16   32-45 stride offset / 16
 *   49-51 base offset              62-63 swizzle: 0 none, 1 = 128 bytes, 2 = 64, 3 = 32
 *
 *   K-major, swizzled     rows of S bytes, atoms of 8 rows a stride apart; leading unused
 *   MN-major, swizzled    rows (one k) of S bytes, 8 k a stride apart, S / 2 mn a leading apart
 *   no swizzle            core matrices of 8 x 16 bytes: a stride apart along mn, a leading along k
 *
 * The XOR of the swizzle acts on the final address. */
#include "runtime/emulator/descriptor.h"

#include "runtime/emulator/machine.h"

static u32 field(u64 descriptor, u32 shift) { return (u32)(descriptor >> shift & 0x3fff) << 4; }

static u32 span(u64 descriptor) {
  static const u8 spans[] = {0, 128, 64, 32};
  return spans[descriptor >> 62];
}

void kiln__descriptor_check(u64 descriptor, const char *site) {
  if (descriptor >> 49 & 7)
    kiln__emu_fault("%s: descriptor 0x%llx has a base offset: tiles begin on a multiple of the "
                    "swizzle's period",
                    site, descriptor);
}

u32 kiln__descriptor_chunk(u64 descriptor, u32 mn, u32 k, int mn_major) {
  const u32 leading = field(descriptor, 16), stride = field(descriptor, 32), s = span(descriptor);
  u32 at = field(descriptor, 0);
  if (s == 0) {
    at += mn / 8 * stride + k / 8 * leading + (mn_major ? k : mn) % 8 * 16;
  } else if (mn_major) {
    at += mn / (s / 2) * leading + k / 8 * stride + k % 8 * s + mn % (s / 2) / 8 * 16;
  } else {
    at += mn / 8 * stride + mn % 8 * s + k / 8 * 16;
  }
  return kiln__swizzle(s, at);
}
