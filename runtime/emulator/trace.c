/* The model clock: threads, meetings, barriers, and the text of events. See trace.h. */
#include "runtime/emulator/trace.h"

#include <math.h>
#include <string.h>

#include "runtime/emulator/launch.h"

#define OUTPUT_GAP 200.0 /* clocks between stores of one output */

/* ---- begin, end ---- */

/* The costs as the page prints them. */
static const struct {
  const char *what, *clocks;
} costs[] = {
    {"any instruction of a thread", "2"},
    {"wgmma m64nNk16, on the tensor cores that the warpgroups share", "N / 2"},
    {"mma.sync m16n8k16, on the tensor core that every fourth warp shares", "8"},
    {"softmax: a score of each lane (ex2 8, the rest 2); seen only as a sum when scores are there",
     "10"},
    {"last division and rounding: an output of each lane", "2"},
    {"ldmatrix, stmatrix, shuffles and votes", "4"},
    {"a load by TMA or cp.async: latency, and bytes of all loads in turn", "600 + bytes / 64"},
    {"a TMA store: read from shared memory, then written", "100 + bytes / 64, + 600"},
};

void kiln__trace_begin(emu_machine *machine, const kiln__trace *order) {
  const u32 blocks = machine->num_blocks;
  emu_trace *trace = kiln__machine_take(machine, sizeof *trace);
  trace->block = order->block;
  trace->json = order->json;
  trace->num_queues = machine->num_threads / EMU_WARPGROUP;
  trace->threads =
      kiln__machine_take(machine, blocks * machine->num_threads * sizeof *trace->threads);
  trace->mbarriers = kiln__machine_take(machine, blocks * EMU_MBARRIERS * sizeof *trace->mbarriers);
  trace->named = kiln__machine_take(machine, blocks * EMU_NAMED_BARRIERS * sizeof *trace->named);
  trace->queues =
      kiln__machine_take(machine, blocks * trace->num_queues * sizeof *trace->queues + 1);
  machine->trace = trace;
  kiln__text_printf(trace->json, "{\"block\":%lld,\"num_blocks\":%lld,\"threads\":%u,\"costs\":[",
                    trace->block, machine->launch->num_blocks, machine->num_threads);
  for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
    kiln__text_printf(trace->json, "%s[\"%s\",\"%s\"]", i ? "," : "", costs[i].what,
                      costs[i].clocks);
  kiln__text_string(trace->json, "],\"events\":[");
}

static void write_batches(emu_machine *machine) {
  emu_block *block = &machine->blocks[machine->trace->block % machine->num_blocks];
  for (const emu_trace_batch *b = machine->trace->batches; b; b = b->next) {
    kiln__trace_event(block, "copy", b->begin, b->end, b->site);
    kiln__text_printf(machine->trace->json,
                      ",\"group\":%d,\"address\":%llu,\"to\":%u,\"bytes\":%lld,\"waited\":%lld}",
                      b->group, (u64)(uintptr_t)b->from, b->to, b->bytes, llround(b->waited));
  }
}

void kiln__trace_end(emu_machine *machine) {
  write_batches(machine);
  kiln__text_printf(machine->trace->json, "\n],\"clocks\":%lld}", llround(machine->trace->last));
}

/* ---- events ---- */

const char *kiln__trace_text(const char *site) {
  const char *text = strstr(site, ": ");
  return text ? text + 2 : site;
}

char kiln__trace_accumulator(const char *site) {
  const char *open = strchr(kiln__trace_text(site), '(');
  return open ? open[1] : '?';
}

static void write_string(kiln__text *json, const char *string) {
  kiln__text_string(json, "\"");
  for (const char *c = string; *c; c++) {
    if (*c == '"' || *c == '\\') kiln__text_append(json, "\\", 1);
    kiln__text_append(json, (unsigned char)*c < 0x20 ? " " : c, 1);
  }
  kiln__text_string(json, "\"");
}

int kiln__trace_event(const emu_block *block, const char *kind, double begin, double end,
                      const char *site) {
  emu_trace *trace = block->machine->trace;
  if (block->index != trace->block) return 0;
  if (end > trace->last) trace->last = end;
  kiln__text_printf(trace->json, "%s\n{\"kind\":\"%s\",\"begin\":%lld,\"end\":%lld,\"site\":",
                    trace->count++ ? "," : "", kind, llround(begin), llround(end));
  write_string(trace->json, site);
  return 1;
}

static void warp_event(const emu_thread *thread, const char *kind, double begin, double end,
                       const char *site) {
  if (thread->lane || end - begin < 1.0) return;
  if (kiln__trace_event(thread->block, kind, begin, end, site))
    kiln__text_printf(thread->machine->trace->json, ",\"warp\":%u}", thread->warp);
}

void kiln__trace_name(const emu_mbarrier *m, char *name, size_t size, int *index) {
  const char *number = strrchr(m->name, '#');
  size_t length = strcspn(m->name, "( +#");
  if (length >= size) length = size - 1;
  memcpy(name, m->name, length);
  name[length] = '\0';
  *index = 0;
  for (number = number ? number + 1 : ""; *number; number++) *index = *index * 10 + *number - '0';
}

/* ---- threads ---- */

emu_trace_thread *kiln__trace_thread(const emu_thread *thread) {
  const emu_machine *machine = thread->machine;
  return &machine->trace->threads[thread->block->rank * machine->num_threads + thread->index];
}

/* The warp has gone on from a run of products. Scores are followed by their softmax, results by
 * their rounding. */
static void close_run(emu_thread *thread) {
  emu_trace_thread *t = kiln__trace_thread(thread);
  const emu_run run = t->run;
  if (!run.site) return;
  t->run.site = NULL;
  const char name = kiln__trace_accumulator(run.site);
  const u32 values = (u32)(run.high - run.low) / (u32)sizeof(float);
  if (name == 's') t->debt += values * TRACE_SCORE;
  if (name == 'o') t->results = values;
  if (thread->lane || !kiln__trace_event(thread->block, "mma", run.begin, run.end, run.site))
    return;
  kiln__text_printf(thread->machine->trace->json, ",\"warp\":%u,\"name\":\"%c\",\"products\":%u}",
                    thread->warp, name, run.count);
}

void kiln__trace_pay(emu_thread *thread) {
  emu_trace_thread *t = kiln__trace_thread(thread);
  close_run(thread);
  if (t->debt == 0.0) return;
  warp_event(thread, "softmax", t->clock, t->clock + t->debt, thread->site);
  t->clock += t->debt;
  t->debt = 0.0;
}

void kiln__trace_wait(emu_thread *thread, double end, const char *name, int index,
                      const char *site) {
  emu_trace_thread *t = kiln__trace_thread(thread);
  const double begin = t->clock;
  if (end <= begin) return;
  t->clock = end;
  if (thread->lane || end - begin < 1.0) return;
  if (!kiln__trace_event(thread->block, "wait", begin, end, site)) return;
  kiln__text_printf(thread->machine->trace->json, ",\"warp\":%u,\"name\":\"%s\",\"index\":%d}",
                    thread->warp, name, index);
}

void kiln__trace_issue(emu_thread *thread) { kiln__trace_thread(thread)->clock += TRACE_ISSUE; }

static void close_output(emu_thread *thread) {
  emu_trace_thread *t = kiln__trace_thread(thread);
  if (t->output_end > 0.0)
    warp_event(thread, "output", t->output_begin, t->output_end, thread->site);
  t->output_end = 0.0;
}

void kiln__trace_output(emu_thread *thread) {
  emu_trace_thread *t = kiln__trace_thread(thread);
  kiln__trace_pay(thread);
  if (t->clock > t->output_end + OUTPUT_GAP) {
    close_output(thread);
    t->output_begin = t->clock;
  }
  t->clock += t->results * TRACE_RESULT + TRACE_MATRIX_MOVE;
  t->results = 0;
  t->output_end = t->clock;
}

void kiln__trace_exit(emu_thread *thread) {
  kiln__trace_pay(thread);
  close_output(thread);
}

/* ---- a warp's lanes ---- */

static int is(const char *text, const char *word) { return !strncmp(text, word, strlen(word)); }

static double latest_lane(const emu_warp *warp) {
  double latest = 0.0;
  for (u32 i = 0; i < EMU_WARP; i++)
    latest = fmax(latest, kiln__trace_thread(&warp->threads[i])->clock);
  return latest;
}

/* mma.sync: warps w, w + 4, ... share a tensor core. Between scores and the first product that uses
 * them lies their softmax. */
static double multiply(emu_warp *warp) {
  emu_thread *first = warp->threads;
  emu_run *run = &kiln__trace_thread(first)->run;
  double *core = &first->machine->trace->core_free[first->block->rank][first->warp % 4];
  const char *d = warp->offers[0].out;
  if (run->site && kiln__trace_accumulator(run->site) != kiln__trace_accumulator(warp->site))
    kiln__trace_pay(first);
  const double begin = fmax(latest_lane(warp), *core);
  if (!run->site) *run = (emu_run){warp->site, begin, begin, d, d, 0};
  *core = run->end = begin + TRACE_MMA;
  if (d < run->low) run->low = d;
  if (d + 4 * sizeof(float) > run->high) run->high = d + 4 * sizeof(float);
  run->count++;
  return run->end;
}

void kiln__trace_meet(emu_warp *warp) {
  const char *text = kiln__trace_text(warp->site);
  double clock;
  if (is(text, "mma")) {
    clock = multiply(warp);
  } else if (is(text, "ldmatrix")) {
    clock = latest_lane(warp) + TRACE_MATRIX_MOVE;
  } else if (is(text, "stmatrix")) {
    for (u32 i = 0; i < EMU_WARP; i++) kiln__trace_output(&warp->threads[i]);
    clock = latest_lane(warp);
  } else {
    for (u32 i = 0; i < EMU_WARP; i++) kiln__trace_pay(&warp->threads[i]);
    clock = latest_lane(warp) + TRACE_SHUFFLE;
  }
  for (u32 i = 0; i < EMU_WARP; i++) kiln__trace_thread(&warp->threads[i])->clock = clock;
}

/* ---- named barriers ---- */

static double *named_of(const emu_block *block, int id) {
  return &block->machine->trace->named[block->rank * EMU_NAMED_BARRIERS + (u32)id];
}

void kiln__trace_named_arrive(emu_thread *thread, int id) {
  double *due = named_of(thread->block, id);
  kiln__trace_pay(thread);
  *due = fmax(*due, kiln__trace_thread(thread)->clock);
}

void kiln__trace_named_done(emu_thread *thread, int id) {
  const double due = *named_of(thread->block, id);
  kiln__trace_wait(thread, due, id ? "barrier" : "sync_threads", id, thread->site);
}

void kiln__trace_named_clear(emu_block *block, int id) { *named_of(block, id) = 0.0; }

/* ---- mbarriers ---- */

static emu_trace_barrier *mbarrier_of(const emu_block *block, const emu_mbarrier *m) {
  return &block->machine->trace->mbarriers[block->rank * EMU_MBARRIERS + m->index];
}

void kiln__trace_arrive(emu_thread *thread, const emu_block *block, const emu_mbarrier *m) {
  emu_trace_barrier *b = mbarrier_of(block, m);
  b->due = fmax(b->due, kiln__trace_thread(thread)->clock);
}

void kiln__trace_landed(const emu_block *block, const emu_mbarrier *m) {
  emu_trace_barrier *b = mbarrier_of(block, m);
  b->due = fmax(b->due, block->machine->trace->now);
}

void kiln__trace_phase(const emu_block *block, const emu_mbarrier *m) {
  emu_trace_barrier *b = mbarrier_of(block, m);
  char name[48];
  int index;
  kiln__trace_name(m, name, sizeof name, &index);
  b->done = b->due;
  b->due = 0.0;
  if (!kiln__trace_event(block, "phase", b->done, b->done, "")) return;
  kiln__text_printf(block->machine->trace->json, ",\"name\":\"%s\",\"index\":%d,\"phase\":%u}",
                    name, index, m->phase - 1);
}

void kiln__trace_waited(emu_thread *thread, const emu_mbarrier *m, const char *site) {
  char name[48];
  int index;
  kiln__trace_pay(thread);
  if (thread->lane) {
    kiln__trace_wait(thread, mbarrier_of(thread->block, m)->done, "", 0, site);
    return;
  }
  kiln__trace_name(m, name, sizeof name, &index);
  kiln__trace_wait(thread, mbarrier_of(thread->block, m)->done, name, index, site);
}
