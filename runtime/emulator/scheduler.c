/* Who runs next, and when asynchronous work lands.
 *
 * A thread runs until an instruction blocks it. Late and eager: the scheduler stays with a warp
 * while it has runnable lanes, then goes on to the next. Random: warps have priorities that are
 * redrawn now and then, lanes are drawn, and every instruction may give up the processor. Starved
 * warps run only when no other warp can and nothing that somebody waits for can land.
 *
 * Late work lands when nothing can run, and only what somebody waits for: the latest moment that
 * the ISA allows. Timed, for traces: threads and landings in the order of the model clock.
 *
 * Where blocks talk through global memory several clusters are resident, each with its machine, and
 * a machine gives way to the others (world.c): when only they can help; at every read of a flag;
 * late, at every step by which blocks talk; random, at any instruction. Late, a wait for a word of
 * theirs ends when nothing else can run.
 *
 * The scheduler runs on a fiber of its own, so that a fault anywhere is the same step: resume the
 * host's thread and forget all fibers. */
#include "runtime/emulator/machine.h"

#include <math.h>

#include "runtime/emulator/launch.h"
#include "runtime/emulator/trace.h"
#include "runtime/emulator/world.h"

#define POLLS         (1u << 24) /* reads of flags until a thread blocks, or a word changes */
#define TIME_OUTS     (1u << 12) /* of tries, in a row */
#define YIELD_ONE_IN  16u        /* instructions under EMU_RANDOM */
#define REDRAW_ONE_IN 64u        /* picks */
#define LAND_ONE_IN   24u        /* picks */
#define TALKS         64u /* steps by which blocks talk, until a cluster gives way in eager */
#define AWAY_ONE_IN   16u /* picks, to another cluster */

u32 kiln__scheduler_random(emu_machine *machine) {
  u64 x = machine->random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  machine->random = x;
  return (u32)(x >> 20);
}

static int one_in(emu_machine *machine, u32 n) { return kiln__scheduler_random(machine) % n == 0; }

/* ---- from a thread to the scheduler and back ---- */

static void leave(emu_thread *thread) {
  kiln__fiber_switch(&thread->sp, thread->machine->scheduler);
}

void kiln__scheduler_yield(emu_thread *thread) {
  if (thread->machine->schedule == EMU_TIMED)
    kiln__trace_issue(thread);
  else if (one_in(thread->machine, YIELD_ONE_IN))
    leave(thread);
}

void kiln__scheduler_poll(emu_thread *thread) {
  emu_machine *machine = thread->machine;
  u32 *polls = machine->world ? &machine->world->polls : &machine->polls;
  machine->polled = 1;
  machine->gives_way = machine->world != NULL;
  machine->last_warp = thread->block->rank * machine->num_warps + thread->warp + 1;
  if (++*polls > POLLS)
    kiln__emu_fault("%s: the %s does not change", thread->site, machine->world ? "word" : "flag");
  leave(thread);
}

void kiln__scheduler_talk(emu_thread *thread) {
  emu_machine *machine = thread->machine;
  if (!machine->world || machine->schedule == EMU_RANDOM) return;
  if (machine->schedule != EMU_LATE && ++machine->talks % TALKS) return;
  machine->gives_way = 1;
  leave(thread);
}

/* The scheduler would go on with the same warp: most switches are between lanes that meet. */
static emu_thread *next_lane(const emu_thread *thread, const emu_warp *warp) {
  const emu_machine *machine = thread->machine;
  if (!warp->runnable || machine->schedule >= EMU_RANDOM || machine->starve) return NULL;
  return &warp->threads[__builtin_ctz(warp->runnable)];
}

void kiln__scheduler_block(emu_thread *thread, emu_wait wait) {
  thread->wait = wait;
  kiln__scheduler_sleep(thread);
}

void kiln__scheduler_sleep(emu_thread *thread) {
  emu_warp *warp = &thread->block->warps[thread->warp];
  thread->machine->polls = 0;
  thread->state = EMU_BLOCKED;
  warp->runnable &= ~(1u << thread->lane);
  emu_thread *next = next_lane(thread, warp);
  if (!next) {
    leave(thread);
    return;
  }
  kiln__emu_current.thread = next;
  kiln__fiber_switch(&thread->sp, next->sp);
}

void kiln__scheduler_wake(emu_thread *thread) {
  if (thread->state != EMU_BLOCKED) return;
  thread->state = EMU_RUNNABLE;
  thread->wait.kind = EMU_WAIT_NONE;
  thread->block->warps[thread->warp].runnable |= 1u << thread->lane;
}

static void run(emu_machine *machine, emu_thread *thread) {
  kiln__emu_current.thread = thread;
  kiln__fiber_switch(&machine->scheduler, thread->sp);
  kiln__emu_current.thread = NULL;
}

/* ---- the choice ---- */

static emu_warp *warp_number(emu_machine *machine, u32 i) {
  return &machine->blocks[i / machine->num_warps].warps[i % machine->num_warps];
}

static int can_run(emu_machine *machine, u32 i, int starved) {
  if (!warp_number(machine, i)->runnable) return 0;
  return (int)(machine->starve >> i % machine->num_warps & 1) == starved;
}

static emu_thread *pick_in_order(emu_machine *machine, int starved) {
  const u32 all = machine->num_blocks * machine->num_warps;
  for (u32 i = 0; i < all; i++) {
    const u32 number = (machine->last_warp + i) % all;
    if (!can_run(machine, number, starved)) continue;
    machine->last_warp = number;
    emu_warp *warp = warp_number(machine, number);
    return &warp->threads[__builtin_ctz(warp->runnable)];
  }
  return NULL;
}

static emu_thread *random_lane(emu_machine *machine, emu_warp *warp) {
  const u32 start = kiln__scheduler_random(machine) % EMU_WARP;
  for (u32 i = 0;; i++) {
    const u32 lane = (start + i) % EMU_WARP;
    if (warp->runnable >> lane & 1) return &warp->threads[lane];
  }
}

static emu_thread *pick_random(emu_machine *machine, int starved) {
  const u32 all = machine->num_blocks * machine->num_warps;
  if (one_in(machine, REDRAW_ONE_IN))
    warp_number(machine, kiln__scheduler_random(machine) % all)->priority =
        kiln__scheduler_random(machine);
  emu_warp *best = NULL;
  for (u32 i = 0; i < all; i++) {
    emu_warp *warp = warp_number(machine, i);
    if (can_run(machine, i, starved) && (!best || warp->priority > best->priority)) best = warp;
  }
  return best ? random_lane(machine, best) : NULL;
}

static emu_thread *pick(emu_machine *machine, int starved) {
  if (machine->schedule == EMU_RANDOM) return pick_random(machine, starved);
  return pick_in_order(machine, starved);
}

/* ---- landing ---- */

static int land_demanded(emu_machine *machine) {
  return kiln__tma_land_demanded(machine) || kiln__wgmma_land_demanded(machine);
}

/* Something that is in flight, wanted or not. */
static int land_any(emu_machine *machine) {
  int (*const engines[])(emu_machine *) = {kiln__tma_land_any, kiln__wgmma_land_any,
                                           kiln__copy_land_any};
  const u32 count = sizeof engines / sizeof *engines, start = kiln__scheduler_random(machine);
  for (u32 i = 0; i < count; i++)
    if (engines[(start + i) % count](machine)) return 1;
  return 0;
}

static u32 alive(const emu_machine *machine) {
  u32 sum = 0;
  for (u32 i = 0; i < machine->num_blocks; i++) sum += machine->blocks[i].alive;
  return sum;
}

/* Nothing can go on: whoever tries to see a phase gives up. 0 when nobody does, or when all have
 * done so for long. */
static int time_out(emu_machine *machine) {
  int count = 0;
  if (++machine->time_outs > TIME_OUTS) return 0;
  for (u32 i = 0; i < machine->num_blocks * machine->num_threads; i++) {
    emu_thread *thread =
        &machine->blocks[i / machine->num_threads].threads[i % machine->num_threads];
    if (thread->wait.kind != EMU_WAIT_TRY) continue;
    thread->timed_out = 1;
    kiln__scheduler_wake(thread);
    count++;
  }
  return count;
}

/* ---- the loop, on its own fiber ---- */

/* Nothing can run: a deadlock, unless threads wait for words that another cluster may change. */
static void no_thread(emu_machine *machine) {
  if (machine->world && kiln__world_wake(machine)) return;
  if (time_out(machine)) {
    machine->gives_way = machine->world != NULL;
    return;
  }
  if (!machine->world || !kiln__world_waits(machine)) kiln__emu_deadlock(machine);
  machine->stuck = machine->gives_way = 1;
  machine->stuck_at = machine->world->changes;
}

static void step(emu_machine *machine) {
  if (machine->polled) land_demanded(machine); /* a thread that polls never blocks */
  machine->polled = 0;
  if (machine->schedule == EMU_RANDOM) {
    if (one_in(machine, LAND_ONE_IN)) land_any(machine);
    if (machine->world && one_in(machine, AWAY_ONE_IN)) machine->gives_way = 1;
  }
  emu_thread *thread = pick(machine, 0);
  if (!thread && land_demanded(machine)) return;
  if (!thread && machine->starve) thread = pick(machine, 1);
  if (thread)
    run(machine, thread);
  else
    no_thread(machine);
}

/* ---- by the model clock ---- */

static emu_thread *pick_earliest(emu_machine *machine) {
  const u32 all = machine->num_blocks * machine->num_warps;
  emu_thread *best = NULL;
  for (u32 i = 0; i < all; i++) {
    emu_warp *warp = warp_number(machine, i);
    for (u32 lanes = warp->runnable; lanes; lanes &= lanes - 1) {
      emu_thread *thread = &warp->threads[__builtin_ctz(lanes)];
      if (!best || kiln__trace_thread(thread)->clock < kiln__trace_thread(best)->clock)
        best = thread;
    }
  }
  return best;
}

/* Work lands before a thread runs that is later. */
static void step_timed(emu_machine *machine) {
  emu_thread *thread = pick_earliest(machine);
  const double tma = kiln__tma_due(machine), wgmma = kiln__wgmma_due(machine);
  const double clock = thread ? kiln__trace_thread(thread)->clock : INFINITY;
  const double due = fmin(tma, wgmma);
  if (thread && clock < due)
    run(machine, thread);
  else if (isinf(due))
    no_thread(machine);
  else if (tma <= wgmma)
    kiln__tma_land_due(machine);
  else
    kiln__wgmma_land_due(machine);
}

/* Lets another cluster run; goes on when it is this one's turn again. */
static void give_way(emu_machine *machine) {
  machine->gives_way = 0;
  kiln__fiber_switch(&machine->scheduler, machine->home);
  if (machine->stuck) machine->time_outs = 0;
  machine->stuck = 0;
  if (machine->schedule != EMU_LATE) kiln__world_wake(machine);
}

static void scheduler_main(void) {
  emu_machine *machine = kiln__emu_current.machine;
  kiln__machine_begin(machine, machine->cluster);
  void (*const next)(emu_machine *) = machine->schedule == EMU_TIMED ? step_timed : step;
  while (alive(machine)) {
    next(machine);
    if (machine->gives_way) give_way(machine);
  }
  kiln__tma_finish(machine);
  if (machine->trace) kiln__trace_end(machine);
  machine->ended = 1;
  kiln__fiber_resume(machine->home);
}

void kiln__scheduler_start(emu_machine *machine, i64 cluster) {
  machine->cluster = cluster;
  machine->resident = 1;
  machine->random = 0x9e3779b97f4a7c15ull * (machine->launch->options.seed + 1) +
                    0xd1b54a32d192ed03ull * (u64)cluster;
  if (!machine->random) machine->random = 1;
  for (int i = 0; i < 8; i++) kiln__scheduler_random(machine);
  const size_t own = machine->num_blocks * machine->num_threads;
  machine->scheduler = kiln__fiber_prepare(&machine->stacks, own, scheduler_main);
}

void kiln__scheduler_resume(emu_machine *machine) {
  const emu_current before = kiln__emu_current;
  kiln__emu_current = (emu_current){NULL, machine};
  kiln__fiber_switch(&machine->home, machine->scheduler);
  kiln__emu_current = before;
}
