/* Atomics in global memory, and the loads and stores that take and hand over through it.
 *
 * Every one is one step: blocks that use them run on one host thread (`talks` in wrappers.lua). Two
 * of them do not race; what they order is in past.h. A load that acquires gives way to other
 * threads first, as it may stand in a loop that waits. */
#include <math.h>

#include "runtime/emulator/global.h"
#include "runtime/emulator/machine.h"
#include "runtime/emulator/trace.h"
#include "runtime/emulator/world.h"

/* Begins an atomic access of `bytes` at p, aligned to its size. One that returns a value decides
 * what the thread does next: other clusters get their turn before it. */
static emu_thread *enter(const void *p, size_t bytes, int returns, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  kiln__global_check(thread->machine, p, bytes, bytes, site);
  if (returns) kiln__scheduler_talk(thread);
  return thread;
}

static void check(emu_thread *thread, const void *p, size_t bytes, int kind, const char *site) {
  const emu_allocation *in = kiln__global_check(thread->machine, p, bytes, bytes, site);
  kiln__global_shadow_access(thread, in, p, bytes, kind | EMU_ATOMIC, kiln__global_mark(thread),
                             site);
}

/* A word is read, changed and written. */
static void change(emu_thread *thread, const void *p, size_t bytes, int order, const char *site) {
  kiln__past_read(thread, p, order);
  check(thread, p, bytes, EMU_WRITES, site);
  kiln__past_update(thread, p, order);
  kiln__world_changed(thread->machine);
}

/* Sums in global memory flush subnormals, of operands and results; those in shared memory do not.
 */
static float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

static float sum(float x, float y) { return flush(flush(x) + flush(y)); }

static void add_floats(float *p, const float *x, u32 count, const char *site) {
  emu_thread *thread = enter(p, count * sizeof *p, 0, site);
  check(thread, p, count * sizeof *p, EMU_WRITES, site);
  for (u32 i = 0; i < count; i++) {
    kiln__past_update(thread, p + i, EMU_RELAXED);
    p[i] = sum(p[i], x[i]);
  }
  kiln__world_changed(thread->machine);
  if (thread->machine->trace) kiln__trace_output(thread);
}

static u32 add_u32(u32 *p, u32 x, int order, const char *site) {
  change(enter(p, sizeof *p, 1, site), p, sizeof *p, order, site);
  const u32 before = *p;
  *p = before + x;
  return before;
}

u32 kiln__emu_atomic_add_u32(u32 *p, u32 x, const char *site) {
  return add_u32(p, x, EMU_RELAXED, site);
}

u32 kiln__emu_atomic_add_u32_acq_rel(u32 *p, u32 x, const char *site) {
  return add_u32(p, x, EMU_ACQUIRE | EMU_RELEASE, site);
}

u64 kiln__emu_atomic_add_u64(u64 *p, u64 x, const char *site) {
  change(enter(p, sizeof *p, 1, site), p, sizeof *p, EMU_RELAXED, site);
  const u64 before = *p;
  *p = before + x;
  return before;
}

/* before + 1, or 0 where before is `last` or above. */
u32 kiln__emu_atomic_inc_u32(u32 *p, u32 last, const char *site) {
  change(enter(p, sizeof *p, 1, site), p, sizeof *p, EMU_RELAXED, site);
  const u32 before = *p;
  *p = before >= last ? 0 : before + 1;
  return before;
}

u32 kiln__emu_atomic_exch_u32(u32 *p, u32 x, const char *site) {
  change(enter(p, sizeof *p, 1, site), p, sizeof *p, EMU_RELAXED, site);
  const u32 before = *p;
  *p = x;
  return before;
}

/* One that fails only reads. It may stand in a loop: it gives way to other threads. */
u32 kiln__emu_atomic_cas_u32(u32 *p, u32 expected, u32 x, const char *site) {
  emu_thread *thread = enter(p, sizeof *p, 1, site);
  const u32 before = *p;
  if (before == expected) {
    change(thread, p, sizeof *p, EMU_RELAXED, site);
    *p = x;
  } else {
    kiln__past_read(thread, p, EMU_RELAXED);
    check(thread, p, sizeof *p, EMU_READS, site);
    kiln__scheduler_poll(thread);
  }
  return before;
}

int kiln__emu_atomic_max_i32(int *p, int x, const char *site) {
  change(enter(p, sizeof *p, 1, site), p, sizeof *p, EMU_RELAXED, site);
  const int before = *p;
  if (x > before) *p = x;
  return before;
}

float kiln__emu_atomic_add_f32(float *p, float x, const char *site) {
  change(enter(p, sizeof *p, 1, site), p, sizeof *p, EMU_RELAXED, site);
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

static u32 acquire(emu_thread *thread, const u32 *p, const char *site) {
  kiln__past_read(thread, p, EMU_ACQUIRE);
  check(thread, p, sizeof *p, EMU_READS, site);
  return *(const volatile u32 *)p;
}

u32 kiln__emu_ldg_acquire_u32(const u32 *p, const char *site) {
  emu_thread *thread = enter(p, sizeof *p, 0, site);
  kiln__scheduler_poll(thread);
  return acquire(thread, p, site);
}

void kiln__emu_semaphore_wait(const u32 *p, u32 value, const char *site) {
  emu_thread *thread = enter(p, sizeof *p, 1, site);
  kiln__world_wait(thread, p, value, site);
  acquire(thread, p, site);
}

void kiln__emu_stg_release_u32(u32 *p, u32 x, const char *site) {
  emu_thread *thread = enter(p, sizeof *p, 1, site);
  check(thread, p, sizeof *p, EMU_WRITES, site);
  kiln__past_store(thread, p, EMU_RELEASE);
  kiln__world_changed(thread->machine);
  *p = x;
}

void kiln__emu_red_add_u32_release(u32 *p, u32 x, const char *site) {
  emu_thread *thread = enter(p, sizeof *p, 1, site);
  check(thread, p, sizeof *p, EMU_WRITES, site);
  kiln__past_update(thread, p, EMU_RELEASE);
  kiln__world_changed(thread->machine);
  *p += x;
}

void kiln__emu_fence_gpu(const char *site) { kiln__past_fence(kiln__emu_enter(site)); }
