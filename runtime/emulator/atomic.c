/* Atomics in global memory, and the loads and stores that take and hand over through it.
 *
 * Every one is one step: blocks that use them run on one host thread (`talks` in wrappers.lua).
 * A load that acquires gives way to other threads first, as it may stand in a loop that waits.
 * What these order is not modelled here. */
#include <math.h>

#include "runtime/emulator/global.h"
#include "runtime/emulator/machine.h"
#include "runtime/emulator/trace.h"

/* Begins an atomic access of `bytes` at p, aligned to its size. */
static emu_thread *enter(const void *p, size_t bytes, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  kiln__global_check(thread->machine, p, bytes, bytes, site);
  return thread;
}

/* Sums in global memory flush subnormals, of operands and results; those in shared memory do not.
 */
static float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

static float sum(float x, float y) { return flush(flush(x) + flush(y)); }

static void add_floats(float *p, const float *x, u32 count, const char *site) {
  const emu_thread *thread = enter(p, count * sizeof *p, site);
  for (u32 i = 0; i < count; i++) p[i] = sum(p[i], x[i]);
  if (thread->machine->trace) kiln__trace_output(kiln__emu_current.thread);
}

u32 kiln__emu_atomic_add_u32(u32 *p, u32 x, const char *site) {
  enter(p, sizeof *p, site);
  const u32 before = *p;
  *p = before + x;
  return before;
}

u32 kiln__emu_atomic_add_u32_acq_rel(u32 *p, u32 x, const char *site) {
  return kiln__emu_atomic_add_u32(p, x, site);
}

/* before + 1, or 0 where before is `last` or above. */
u32 kiln__emu_atomic_inc_u32(u32 *p, u32 last, const char *site) {
  enter(p, sizeof *p, site);
  const u32 before = *p;
  *p = before >= last ? 0 : before + 1;
  return before;
}

u32 kiln__emu_atomic_exch_u32(u32 *p, u32 x, const char *site) {
  enter(p, sizeof *p, site);
  const u32 before = *p;
  *p = x;
  return before;
}

/* One that fails may stand in a loop: it gives way to other threads. */
u32 kiln__emu_atomic_cas_u32(u32 *p, u32 expected, u32 x, const char *site) {
  emu_thread *thread = enter(p, sizeof *p, site);
  const u32 before = *p;
  if (before == expected)
    *p = x;
  else
    kiln__scheduler_poll(thread);
  return before;
}

int kiln__emu_atomic_max_i32(int *p, int x, const char *site) {
  enter(p, sizeof *p, site);
  const int before = *p;
  if (x > before) *p = x;
  return before;
}

float kiln__emu_atomic_add_f32(float *p, float x, const char *site) {
  enter(p, sizeof *p, site);
  const float before = *p;
  *p = sum(before, x);
  return before;
}

void kiln__emu_red_add_f32(float *p, float x, const char *site) { add_floats(p, &x, 1, site); }

void kiln__emu_red_add_f32x2(float *p, const float *x, const char *site) {
  add_floats(p, x, 2, site);
}

void kiln__emu_red_add_f32x4(float *p, const float *x, const char *site) {
  add_floats(p, x, 4, site);
}

/* ---- taking and handing over ---- */

u32 kiln__emu_ldg_acquire_u32(const u32 *p, const char *site) {
  emu_thread *thread = enter(p, sizeof *p, site);
  kiln__scheduler_poll(thread);
  return *(const volatile u32 *)p;
}

void kiln__emu_semaphore_wait(const u32 *p, u32 value, const char *site) {
  while (kiln__emu_ldg_acquire_u32(p, site) != value) {
  }
}

void kiln__emu_stg_release_u32(u32 *p, u32 x, const char *site) {
  enter(p, sizeof *p, site);
  *p = x;
}

void kiln__emu_red_add_u32_release(u32 *p, u32 x, const char *site) {
  enter(p, sizeof *p, site);
  *p += x;
}

void kiln__emu_fence_gpu(const char *site) { kiln__emu_enter(site); }
