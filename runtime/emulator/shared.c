/* Shared memory through the generic proxy: loads, stores, atomics, ldmatrix, stmatrix and raced
 * flags. */
#include "runtime/emulator/machine.h"

#include <string.h>

#include "runtime/emulator/trace.h"
#include "runtime/emulator/warp.h"

void kiln__shared_check(const emu_block *block, u32 at, u32 bytes, u32 align, const char *site) {
  const u32 end = EMU_SHARED_BASE + block->machine->shared_bytes;
  if (at % align)
    kiln__emu_fault("%s: shared address 0x%x is not a multiple of %u", site, at, align);
  if (at < EMU_SHARED_BASE || at > end || bytes > end - at)
    kiln__emu_fault("%s: %u bytes at shared 0x%x lie outside the block's memory (0x%x to 0x%x)",
                    site, bytes, at, EMU_SHARED_BASE, end);
}

static void load(void *to, u32 at, u32 bytes, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  kiln__shared_check(thread->block, at, bytes, bytes, site);
  kiln__shadow_read(thread, at, bytes, site);
  memcpy(to, thread->block->shared + at, bytes);
}

static void store(u32 at, const void *from, u32 bytes, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  kiln__shared_check(thread->block, at, bytes, bytes, site);
  kiln__shadow_write(thread, at, bytes, site);
  memcpy(thread->block->shared + at, from, bytes);
}

u32 kiln__emu_shared_base(const char *site) {
  (void)site;
  return EMU_SHARED_BASE;
}

int kiln__emu_lds_i32(u32 at, const char *site) {
  int x;
  load(&x, at, sizeof x, site);
  return x;
}

float kiln__emu_lds_f32(u32 at, const char *site) {
  float x;
  load(&x, at, sizeof x, site);
  return x;
}

void kiln__emu_sts_i32(u32 at, int x, const char *site) { store(at, &x, sizeof x, site); }
void kiln__emu_sts_f32(u32 at, float x, const char *site) { store(at, &x, sizeof x, site); }

/* On the way of results. */
static void trace_output(void) {
  if (kiln__emu_current.machine->trace) kiln__trace_output(kiln__emu_current.thread);
}

void kiln__emu_lds_u32x4(u32 *r, u32 at, const char *site) {
  load(r, at, 16, site);
  trace_output();
}

void kiln__emu_sts_u32(u32 at, u32 x, const char *site) {
  store(at, &x, sizeof x, site);
  trace_output();
}

void kiln__emu_sts_u32x4(u32 at, const u32 *r, const char *site) { store(at, r, 16, site); }

/* ---- atomics: each is one step, and none orders anything ---- */

static void *enter_atomic(u32 at, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  kiln__shared_check(thread->block, at, 4, 4, site);
  kiln__shadow_atomic(thread, at, site);
  return thread->block->shared + at;
}

u32 kiln__emu_atomic_shared_add_u32(u32 at, u32 x, const char *site) {
  void *word = enter_atomic(at, site);
  u32 before;
  memcpy(&before, word, sizeof before);
  x += before;
  memcpy(word, &x, sizeof x);
  return before;
}

int kiln__emu_atomic_shared_max_i32(u32 at, int x, const char *site) {
  void *word = enter_atomic(at, site);
  int before;
  memcpy(&before, word, sizeof before);
  if (x > before) memcpy(word, &x, sizeof x);
  return before;
}

/* Subnormals are kept, unlike in global memory. */
float kiln__emu_atomic_shared_add_f32(u32 at, float x, const char *site) {
  void *word = enter_atomic(at, site);
  float before;
  memcpy(&before, word, sizeof before);
  x += before;
  memcpy(word, &x, sizeof x);
  return before;
}

/* ---- flags that are raced on purpose ---- */

int kiln__emu_lds_flag(u32 at, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  int x;
  kiln__scheduler_poll(thread);
  kiln__shared_check(thread->block, at, sizeof x, sizeof x, site);
  kiln__shadow_flag_read(thread, at, site);
  memcpy(&x, thread->block->shared + at, sizeof x);
  return x;
}

void kiln__emu_sts_flag(u32 at, int x, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  kiln__shared_check(thread->block, at, sizeof x, sizeof x, site);
  kiln__shadow_flag_write(thread, at, site);
  memcpy(thread->block->shared + at, &x, sizeof x);
}

/* ---- ldmatrix, stmatrix: 8 x 8 matrices of 16-bit elements ----
 * Lane i names row i % 8 of matrix i / 8. Register m of lane i holds row i / 4 of matrix m, columns
 * 2 (i % 4) and the next; with .trans column i / 4, rows 2 (i % 4) and the next. */

static u16 element(const emu_warp *warp, u32 matrix, u32 row, u32 column) {
  u16 x;
  const u32 at = warp->offers[8 * matrix + row].value + 2 * column;
  memcpy(&x, warp->threads[0].block->shared + at, sizeof x);
  return x;
}

static void load_checks(emu_warp *warp) {
  for (u32 i = 0; i < EMU_WARP; i++) {
    kiln__shadow_read(&warp->threads[i], warp->offers[i].value, 16, warp->site);
    kiln__proxy_loaded(&warp->threads[i], warp->offers[i].out);
  }
}

static void load_rows(emu_warp *warp) {
  load_checks(warp);
  for (u32 i = 0; i < EMU_WARP; i++) {
    u32 *r = warp->offers[i].out;
    for (u32 m = 0; m < 4; m++)
      memcpy(&r[m],
             warp->threads[0].block->shared + warp->offers[8 * m + i / 4].value + 4 * (i % 4),
             sizeof r[m]);
  }
}

static void load_columns(emu_warp *warp) {
  load_checks(warp);
  for (u32 i = 0; i < EMU_WARP; i++) {
    u32 *r = warp->offers[i].out;
    for (u32 m = 0; m < 4; m++)
      r[m] = element(warp, m, 2 * (i % 4), i / 4) | (u32)element(warp, m, 2 * (i % 4) + 1, i / 4)
                                                        << 16;
  }
}

static void store_rows(emu_warp *warp) {
  for (u32 i = 0; i < EMU_WARP; i++) {
    const u32 at = warp->offers[i].value;
    kiln__shadow_write(&warp->threads[i], at, 16, warp->site);
    for (u32 q = 0; q < 4; q++)
      memcpy(warp->threads[0].block->shared + at + 4 * q,
             (const u32 *)warp->offers[4 * (i % 8) + q].in[0] + i / 8, 4);
  }
}

/* Register m of lane 4c + q holds rows 2q and 2q + 1 of column c of matrix m. */
static void store_columns(emu_warp *warp) {
  for (u32 i = 0; i < EMU_WARP; i++) {
    const u32 at = warp->offers[i].value, row = i % 8;
    kiln__shadow_write(&warp->threads[i], at, 16, warp->site);
    for (u32 c = 0; c < 8; c++) {
      const u32 *pairs = warp->offers[4 * c + row / 2].in[0];
      const u16 x = (u16)(pairs[i / 8] >> 16 * (row % 2));
      memcpy(warp->threads[0].block->shared + at + 2 * c, &x, sizeof x);
    }
  }
}

/* A load puts its registers to `out`, a store takes them from `in`. */
static void meet_matrix(u32 at, void *out, const u32 *in, emu_action *action, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  kiln__shared_check(thread->block, at, 16, 16, site);
  emu_offer *offer = kiln__warp_offer(thread);
  offer->value = at;
  offer->out = out;
  offer->in[0] = in;
  kiln__warp_meet(thread, action, site);
}

void kiln__emu_ldmatrix_x4(u32 *r, u32 at, const char *site) {
  meet_matrix(at, r, NULL, load_rows, site);
}

void kiln__emu_ldmatrix_x4_trans(u32 *r, u32 at, const char *site) {
  meet_matrix(at, r, NULL, load_columns, site);
}

void kiln__emu_stmatrix_x4(u32 at, const u32 *r, const char *site) {
  meet_matrix(at, NULL, r, store_rows, site);
}

void kiln__emu_stmatrix_x4_trans(u32 at, const u32 *r, const char *site) {
  meet_matrix(at, NULL, r, store_columns, site);
}
