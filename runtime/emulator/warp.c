/* The meeting of a warp's lanes, shuffles, votes and __syncwarp. Only the last orders anything. */
#include "runtime/emulator/warp.h"

#include <string.h>

#include "runtime/emulator/trace.h"

static void wake_lanes(emu_warp *warp) {
  for (u32 i = 0; i < EMU_WARP; i++)
    if (warp->threads[i].wait.kind == EMU_WAIT_WARP) kiln__scheduler_wake(&warp->threads[i]);
}

const emu_offer *kiln__warp_meet(emu_thread *thread, emu_action *action, const char *site) {
  emu_warp *warp = &thread->block->warps[thread->warp];
  if (warp->arrived && warp->action != action)
    kiln__emu_fault("%s meets %s of another lane of the warp", site, warp->site);
  warp->action = action;
  warp->site = site;
  if (++warp->arrived < EMU_WARP) {
    thread->wait.kind = EMU_WAIT_WARP;
    thread->wait.object = warp;
    thread->wait.site = site;
    kiln__scheduler_sleep(thread);
  } else {
    if (thread->machine->trace) kiln__trace_meet(warp);
    action(warp);
    warp->arrived = 0;
    wake_lanes(warp);
  }
  return &warp->offers[thread->lane];
}

/* ---- shuffles, votes, reductions ---- */

static u32 float_bits(float x) {
  u32 bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static float bits_float(u32 bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void shuffle_index(emu_warp *warp) {
  emu_offer *o = warp->offers;
  for (u32 i = 0; i < EMU_WARP; i++) o[i].result = o[o[i].argument % EMU_WARP].value;
}

static void shuffle_xor(emu_warp *warp) {
  emu_offer *o = warp->offers;
  for (u32 i = 0; i < EMU_WARP; i++) o[i].result = o[(i ^ o[i].argument) % EMU_WARP].value;
}

static void vote_any(emu_warp *warp) {
  u32 any = 0;
  for (u32 i = 0; i < EMU_WARP; i++) any |= warp->offers[i].value != 0;
  for (u32 i = 0; i < EMU_WARP; i++) warp->offers[i].result = any;
}

static void reduce_max(emu_warp *warp) {
  int max = (int)warp->offers[0].value;
  for (u32 i = 1; i < EMU_WARP; i++)
    if ((int)warp->offers[i].value > max) max = (int)warp->offers[i].value;
  for (u32 i = 0; i < EMU_WARP; i++) warp->offers[i].result = (u32)max;
}

static u32 meet(u32 value, u32 argument, emu_action *action, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_offer *offer = kiln__warp_offer(thread);
  offer->value = value;
  offer->argument = argument;
  return kiln__warp_meet(thread, action, site)->result;
}

int kiln__emu_shfl_i32(int x, int lane, const char *site) {
  return (int)meet((u32)x, (u32)lane, shuffle_index, site);
}

u32 kiln__emu_shfl_xor_u32(u32 x, int lanes, const char *site) {
  return meet(x, (u32)lanes, shuffle_xor, site);
}

float kiln__emu_shfl_xor_f32(float x, int lanes, const char *site) {
  return bits_float(meet(float_bits(x), (u32)lanes, shuffle_xor, site));
}

int kiln__emu_any_sync(int x, const char *site) { return (int)meet((u32)x, 0, vote_any, site); }

int kiln__emu_redux_max_i32(int x, const char *site) {
  return (int)meet((u32)x, 0, reduce_max, site);
}

/* ---- __syncwarp ---- */

static void join_lanes(emu_warp *warp) {
  emu_machine *machine = warp->threads[0].machine;
  emu_sum sum = {0};
  for (u32 i = 0; i < EMU_WARP; i++) kiln__clocks_release(&warp->threads[i], &sum);
  emu_snapshot *all = kiln__clocks_publish(machine, &sum);
  for (u32 i = 0; i < EMU_WARP; i++) kiln__clocks_acquire(&warp->threads[i], all);
  kiln__clocks_drop(machine, all);
  kiln__clocks_drop(machine, sum.joined);
}

void kiln__emu_sync_warp(const char *site) {
  kiln__warp_meet(kiln__emu_enter(site), join_lanes, site);
}

/* ---- who am I ---- */

int kiln__emu_thread_index(const char *site) {
  (void)site;
  return (int)kiln__emu_current.thread->index;
}
