/* Which of a thread's own generic accesses an access through the async proxy (TMA, wgmma operands)
 * may follow: the component EMU_FENCED of its clock.
 *
 * Rules, by reading of the PTX ISA and strict on the writer's side:
 *   a write counts from the writer's own fence.proxy.async on;
 *   a read by ld.shared counts at once, its value has been returned;
 *   a read by ldmatrix counts when an instruction that needs its registers has run: mma.sync, or a
 *   wgmma that has been waited for, or a fence.proxy.async.
 * The last rule models a failure seen on a GPU: a slot released right after ldmatrix was
 * overwritten by TMA before the load had read it. Only blocks with mbarriers have TMA, others skip
 * the list. */
#include "runtime/emulator/machine.h"

#include <string.h>

static void forget(emu_proxy *p, u32 i) {
  p->num_loads--;
  memmove(p->loads + i, p->loads + i + 1, (p->num_loads - i) * sizeof *p->loads);
}

void kiln__proxy_update(emu_thread *thread) {
  const emu_proxy *p = &thread->proxy;
  emu_knowledge *k = &thread->knows;
  int first = p->unfenced;
  for (u32 i = 0; i < p->num_loads; i++)
    if (!first || p->loads[i].clock < first) first = p->loads[i].clock;
  const int safe = first ? first - 1 : k->own[EMU_GENERIC];
  if (safe <= k->own[EMU_FENCED]) return;
  k->own[EMU_FENCED] = safe;
  k->version++;
}

void kiln__proxy_wrote(emu_thread *thread) {
  if (!thread->proxy.unfenced) thread->proxy.unfenced = thread->knows.own[EMU_GENERIC];
}

/* A full list loses its oldest entry: a fault may then go unseen, never the reverse. */
void kiln__proxy_loaded(emu_thread *thread, const u32 *registers) {
  emu_proxy *p = &thread->proxy;
  if (!thread->machine->checking || !thread->block->num_mbarriers) return;
  if (p->num_loads == EMU_LOADS) forget(p, 0);
  p->loads[p->num_loads++] = (emu_load){registers, thread->knows.own[EMU_GENERIC], 0};
}

/* mma.sync has taken `count` registers: the loads that filled them are complete. */
void kiln__proxy_consumed(emu_thread *thread, const u32 *registers, u32 count) {
  emu_proxy *p = &thread->proxy;
  for (u32 i = p->num_loads; i-- > 0;) {
    const u32 *loaded = p->loads[i].registers;
    if (loaded < registers + count && registers < loaded + 4) forget(p, i);
  }
}

void kiln__proxy_group(emu_thread *thread, const u32 *registers, int group) {
  emu_proxy *p = &thread->proxy;
  for (u32 i = 0; i < p->num_loads; i++)
    if (p->loads[i].registers == registers && !p->loads[i].group) p->loads[i].group = group;
}

/* Own accesses up to now may be followed from here on; later ones have a later clock. */
static void advance(emu_thread *thread) {
  kiln__proxy_update(thread);
  thread->knows.own[EMU_GENERIC]++;
  thread->knows.version++;
}

void kiln__proxy_waited(emu_thread *thread, int group) {
  emu_proxy *p = &thread->proxy;
  const u32 before = p->num_loads;
  for (u32 i = p->num_loads; i-- > 0;)
    if (p->loads[i].group && p->loads[i].group <= group) forget(p, i);
  if (p->num_loads != before) advance(thread);
}

void kiln__emu_fence_async(const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  if (!thread->machine->checking) return;
  thread->proxy.num_loads = 0;
  thread->proxy.unfenced = 0;
  thread->knows.own[EMU_COPIES_FENCED] = thread->knows.own[EMU_COPIES];
  advance(thread);
}

/* The same in global memory: see global_shadow.c. */
void kiln__emu_fence_async_global(const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  if (!thread->machine->checking) return;
  thread->knows.own[EMU_FENCED_GLOBAL] = thread->knows.own[EMU_GENERIC];
  advance(thread);
}
