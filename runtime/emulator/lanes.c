/* What the lanes of a warp tell each other: shuffles by distance, votes, reductions, the election
 * of one. None of them orders memory. The meeting itself, and the rest: warp.c. */
#include <string.h>

#include "runtime/emulator/launch.h"
#include "runtime/emulator/warp.h"

/* ---- shuffles ---- */

static void shuffle_index(emu_warp *warp) {
  emu_offer *o = warp->offers;
  for (u32 i = 0; i < EMU_WARP; i++) o[i].result = o[o[i].argument % EMU_WARP].value;
}

/* A lane without a partner keeps its own value. */
static void shuffle_by(emu_warp *warp, int sign) {
  emu_offer *o = warp->offers;
  for (u32 i = 0; i < EMU_WARP; i++) {
    const i64 from = (i64)i + sign * (i64)o[i].argument;
    o[i].result = o[from >= 0 && from < EMU_WARP ? (u32)from : i].value;
  }
}

static void shuffle_up(emu_warp *warp) { shuffle_by(warp, -1); }
static void shuffle_down(emu_warp *warp) { shuffle_by(warp, 1); }

static int shuffle(int x, int lanes, emu_action *action, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_offer *offer = kiln__warp_offer(thread);
  offer->value = (u32)x;
  offer->argument = (u32)lanes;
  return (int)kiln__warp_meet(thread, action, site)->result;
}

float kiln__emu_shfl_f32(float x, int lane, const char *site) {
  u32 bits;
  float y;
  memcpy(&bits, &x, sizeof x);
  bits = (u32)shuffle((int)bits, lane, shuffle_index, site);
  memcpy(&y, &bits, sizeof y);
  return y;
}

int kiln__emu_shfl_up_i32(int x, int lanes, const char *site) {
  return shuffle(x, lanes, shuffle_up, site);
}

int kiln__emu_shfl_down_i32(int x, int lanes, const char *site) {
  return shuffle(x, lanes, shuffle_down, site);
}

/* ---- votes ---- */

static void give_all(emu_warp *warp, u32 result) {
  for (u32 i = 0; i < EMU_WARP; i++) warp->offers[i].result = result;
}

static u32 ballot(const emu_warp *warp) {
  u32 lanes = 0;
  for (u32 i = 0; i < EMU_WARP; i++) lanes |= (u32)(warp->offers[i].value != 0) << i;
  return lanes;
}

static void vote_all(emu_warp *warp) { give_all(warp, ballot(warp) == ~0u); }
static void vote_ballot(emu_warp *warp) { give_all(warp, ballot(warp)); }

int kiln__emu_all_sync(int x, const char *site) { return shuffle(x, 0, vote_all, site); }
u32 kiln__emu_ballot_sync(int x, const char *site) { return (u32)shuffle(x, 0, vote_ballot, site); }

/* ---- reductions ---- */

enum { ADD, MIN, MAX, AND, OR, XOR }; /* as in wrapper_forms.lua */

static u32 combine(int op, int is_signed, u32 x, u32 y) {
  const int less = is_signed ? (int)x < (int)y : x < y;
  switch (op) {
  case ADD: return x + y;
  case MIN: return less ? x : y;
  case MAX: return less ? y : x;
  case AND: return x & y;
  case OR: return x | y;
  default: return x ^ y;
  }
}

static void reduce(emu_warp *warp) {
  const int op = (int)warp->offers[0].argument / 2, is_signed = (int)warp->offers[0].argument % 2;
  u32 result = warp->offers[0].value;
  for (u32 i = 1; i < EMU_WARP; i++) {
    if (warp->offers[i].argument != warp->offers[0].argument)
      kiln__emu_fault("%s meets another reduction of the warp", warp->site);
    result = combine(op, is_signed, result, warp->offers[i].value);
  }
  give_all(warp, result);
}

u32 kiln__emu_redux(int op, int is_signed, u32 x, const char *site) {
  return (u32)shuffle((int)x, 2 * op + is_signed, reduce, site);
}

/* ---- the election of one lane ---- */

/* The ISA says that it is always the same lane, not which one. */
static u32 leader(const emu_machine *machine) {
  switch (machine->schedule) {
  case EMU_LATE: return EMU_WARP - 1;
  case EMU_RANDOM: return (u32)(machine->launch->options.seed * 0x9e3779b97f4a7c15ull >> 59);
  default: return 0;
  }
}

static void elect(emu_warp *warp) {
  give_all(warp, 0);
  warp->offers[leader(warp->threads[0].machine)].result = 1;
}

int kiln__emu_elect_one(const char *site) { return shuffle(0, 0, elect, site); }
