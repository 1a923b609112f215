/* Global memory: loads and stores, each inside one allocation and aligned to its size. */
#include "runtime/emulator/global.h"

#include <stdio.h>
#include <string.h>

#include "runtime/emulator/launch.h"
#include "runtime/emulator/trace.h"
#include "runtime/emulator/world.h"

static void fault_bounds(const emu_allocation *a, const char *p, size_t bytes, const char *site) {
  if (!a || p >= a->map + a->map_bytes)
    kiln__emu_fault("%s: %zu bytes at %p lie in no device memory", site, bytes, (const void *)p);
  kiln__emu_fault("%s: %zu bytes at offset %td of an allocation of %zu bytes", site, bytes,
                  p - a->start, a->bytes);
}

const emu_allocation *kiln__global_check(const emu_machine *machine, const void *p, size_t bytes,
                                         size_t align, const char *site) {
  const emu_launch *launch = machine->launch;
  if ((uintptr_t)p % align)
    kiln__emu_fault("%s: global address %p is not a multiple of %zu", site, p, align);
  const emu_allocation *a = kiln__memory_find(launch->memory, launch->num_allocations, p);
  const size_t offset = a ? (size_t)((const char *)p - a->start) : 0;
  if (!a || offset > a->bytes || bytes > a->bytes - offset) fault_bounds(a, p, bytes, site);
  return a;
}

const char *kiln__global_place(const emu_machine *machine, const void *p, char *out, size_t size) {
  const emu_launch *launch = machine->launch;
  const emu_allocation *a = kiln__memory_find(launch->memory, launch->num_allocations, p);
  snprintf(out, size, "offset %td of an allocation of %zu bytes", (const char *)p - a->start,
           a->bytes);
  return out;
}

emu_mark kiln__global_mark(const emu_thread *thread) {
  return (emu_mark){thread->knows.first + EMU_GENERIC, thread->knows.own[EMU_GENERIC]};
}

static void load(void *to, const void *from, size_t bytes, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  const emu_allocation *in = kiln__global_check(thread->machine, from, bytes, bytes, site);
  kiln__global_shadow_access(thread, in, from, bytes, EMU_READS, kiln__global_mark(thread), site);
  memcpy(to, from, bytes);
}

static void store(void *to, const void *from, size_t bytes, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  const emu_allocation *in = kiln__global_check(thread->machine, to, bytes, bytes, site);
  kiln__global_shadow_access(thread, in, to, bytes, EMU_WRITES, kiln__global_mark(thread), site);
  kiln__past_forget(thread->machine->world, to, bytes);
  memcpy(to, from, bytes);
  kiln__world_changed(thread->machine);
  if (thread->machine->trace) kiln__trace_output(thread);
}

float kiln__emu_ldg_f32(const float *p, const char *site) {
  float x;
  load(&x, p, sizeof x, site);
  return x;
}

u32 kiln__emu_ldg_u16(const u16 *p, const char *site) {
  u16 x;
  load(&x, p, sizeof x, site);
  return x;
}

void kiln__emu_stg_u16(u16 *p, u32 x, const char *site) {
  const u16 low = (u16)x;
  store(p, &low, sizeof low, site);
}

void kiln__emu_stg_f32(float *p, float x, const char *site) { store(p, &x, sizeof x, site); }
void kiln__emu_stg_u32(void *p, u32 x, const char *site) { store(p, &x, sizeof x, site); }
void kiln__emu_ldg_u32x4(u32 *r, const void *p, const char *site) { load(r, p, 16, site); }
void kiln__emu_stg_u32x4(void *p, const u32 *r, const char *site) { store(p, r, 16, site); }
