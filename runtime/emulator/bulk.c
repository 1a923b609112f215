/* Bulk copies without a tensor map: bytes in a row between global and shared memory, to another
 * block of the cluster, and added to numbers in global memory. How they land: transfer.c. */
#include "runtime/emulator/machine.h"

#include "runtime/emulator/global.h"
#include "runtime/emulator/transfer.h"

static emu_transfer flat(const emu_thread *thread, u32 at, u32 bytes, const char *site) {
  if (!bytes || bytes % EMU_CHUNK)
    kiln__emu_fault("%s: %u bytes; multiples of 16 are legal", site, bytes);
  kiln__shared_check(thread->block, at, bytes, EMU_CHUNK, site);
  return (emu_transfer){.at = at, .width = EMU_CHUNK, .rows = bytes / EMU_CHUNK, .site = site};
}

/* The other side, in global memory; whether it is read or written is the transfer's. */
static void set_global(const emu_thread *thread, emu_transfer *t, const void *p) {
  t->in = kiln__global_check(thread->machine, p, t->rows * EMU_CHUNK, EMU_CHUNK, t->site);
  t->flat = (char *)(uintptr_t)p;
}

void kiln__emu_bulk_load(u32 to, const void *from, u32 bytes, u32 bar, u64 policy,
                         const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  (void)policy;
  emu_transfer t = flat(thread, to, bytes, site);
  set_global(thread, &t, from);
  kiln__transfer_load(thread, thread->block, &t, bar);
}

void kiln__emu_bulk_store(void *to, u32 from, u32 bytes, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_transfer t = flat(thread, from, bytes, site);
  set_global(thread, &t, to);
  kiln__transfer_store(thread, &t);
}

void kiln__emu_bulk_add(int dtype, void *to, u32 from, u32 bytes, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_transfer t = flat(thread, from, bytes, site);
  set_global(thread, &t, to);
  t.add = 1;
  t.dtype = dtype;
  kiln__transfer_store(thread, &t);
}

void kiln__emu_bulk_copy_peer(u32 to, u32 from, u32 bytes, u32 bar, u32 block, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_machine *machine = thread->machine;
  if (block >= machine->num_blocks)
    kiln__emu_fault("%s: block %u of a cluster of %u", site, block, machine->num_blocks);
  kiln__shared_check(thread->block, from, bytes, EMU_CHUNK, site);
  emu_transfer t = flat(thread, to, bytes, site);
  t.source = thread->block;
  t.source_at = from;
  kiln__transfer_load(thread, &machine->blocks[block], &t, bar);
}
