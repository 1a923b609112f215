/* The model clock of work that lands by itself: TMA, cp.async, wgmma. See trace.h. */
#include "runtime/emulator/trace.h"

#include <math.h>

#include "runtime/emulator/launch.h"

/* ---- TMA: loads and stores each pass one by one ---- */

void kiln__trace_transfer(emu_thread *thread, emu_transfer *t, u32 bytes) {
  emu_trace *trace = thread->machine->trace;
  double *engine = t->store ? &trace->store_free : &trace->load_free;
  t->issued = kiln__trace_thread(thread)->clock;
  *engine = fmax(*engine, t->issued) + bytes / TRACE_BYTES;
  t->due = *engine + (t->store ? TRACE_READ_LATENCY : TRACE_LATENCY);
}

static void load_lands(const emu_transfer *t, u32 bytes) {
  char name[48];
  int index;
  kiln__trace_name(t->mbarrier, name, sizeof name, &index);
  if (!kiln__trace_event(t->block, "load", t->issued, t->due, t->site)) return;
  kiln__text_printf(t->block->machine->trace->json,
                    ",\"name\":\"%s\",\"index\":%d,\"phase\":%u,\"bytes\":%u,\"row\":%d,"
                    "\"head\":%d,\"batch\":%d}",
                    name, index, t->mbarrier->phase, bytes, t->coordinates[1], t->coordinates[2],
                    t->coordinates[3]);
}

static void store_lands(emu_transfer *t, u32 bytes) {
  emu_trace_thread *owner = kiln__trace_thread(t->owner);
  if (!t->staged) {
    t->read = t->due;
    owner->read = fmax(owner->read, t->due);
    t->due += TRACE_LATENCY;
    return;
  }
  owner->done = fmax(owner->done, t->due);
  if (!kiln__trace_event(t->block, "store", t->issued, t->due, t->site)) return;
  kiln__text_printf(t->block->machine->trace->json,
                    ",\"warp\":%u,\"read\":%lld,\"bytes\":%u,\"row\":%d,\"head\":%d,\"batch\":%d}",
                    t->owner->warp, llround(t->read), bytes, t->coordinates[1], t->coordinates[2],
                    t->coordinates[3]);
}

void kiln__trace_transfer_lands(emu_machine *machine, emu_transfer *t, u32 bytes) {
  machine->trace->now = t->due;
  if (t->store)
    store_lands(t, bytes);
  else
    load_lands(t, bytes);
}

void kiln__trace_bulk_waited(emu_thread *thread, int read, const char *site) {
  const emu_trace_thread *t = kiln__trace_thread(thread);
  kiln__trace_pay(thread);
  kiln__trace_wait(thread, read ? t->read : t->done, read ? "bulk_wait_read" : "bulk_wait", 0,
                   site);
}

/* ---- cp.async ---- */

/* Rows outside the tensor read nothing: they count to the batch before. */
static emu_trace_batch *find_batch(emu_thread *thread, const emu_copy *copy) {
  emu_machine *machine = thread->machine;
  const emu_allocation *a =
      copy->bytes
          ? kiln__memory_find(machine->launch->memory, machine->launch->num_allocations, copy->from)
          : NULL;
  for (emu_trace_batch *b = machine->trace->batches; b; b = b->next)
    if (b->group == copy->group && (!a || b->source == a->start)) return b;
  if (!a) return NULL;
  emu_trace_batch *b = kiln__machine_take(machine, sizeof *b);
  *b = (emu_trace_batch){.next = machine->trace->batches,
                         .group = copy->group,
                         .source = a->start,
                         .from = copy->from,
                         .to = copy->to,
                         .begin = kiln__trace_thread(thread)->clock,
                         .site = copy->site};
  machine->trace->batches = b;
  return b;
}

void kiln__trace_copy(emu_thread *thread, const emu_copy *copy) {
  emu_trace *trace = thread->machine->trace;
  emu_trace_thread *t = kiln__trace_thread(thread);
  trace->load_free = fmax(trace->load_free, t->clock) + copy->bytes / TRACE_BYTES;
  const double lands = trace->load_free + TRACE_LATENCY;
  t->copied[copy->group % TRACE_COPY_GROUPS] = lands;
  emu_trace_batch *b = thread->block->index == trace->block ? find_batch(thread, copy) : NULL;
  if (!b) return;
  b->bytes += copy->bytes;
  b->begin = fmin(b->begin, t->clock);
  b->end = fmax(b->end, lands);
  if (copy->to < b->to) b->to = copy->to;
  if (copy->bytes && (const char *)copy->from < b->from) b->from = copy->from;
}

/* Groups up to `group` have landed; the older ones were waited for before. */
void kiln__trace_copies_waited(emu_thread *thread, int group, const char *site) {
  emu_trace_thread *t = kiln__trace_thread(thread);
  double end = 0.0;
  for (int g = group; g > 0 && g > group - TRACE_COPY_GROUPS / 2; g--)
    end = fmax(end, t->copied[g % TRACE_COPY_GROUPS]);
  kiln__trace_pay(thread);
  kiln__trace_wait(thread, end, "cp_async_wait", 0, site);
  if (thread->block->index != thread->machine->trace->block) return;
  for (emu_trace_batch *b = thread->machine->trace->batches; b; b = b->next)
    if (b->group <= group && b->waited < b->end) b->waited = fmax(b->end, t->clock);
}

/* ---- wgmma: one by one on the tensor cores of the block ---- */

static emu_trace_queue *queue_of(const emu_block *block, u32 number) {
  const emu_trace *trace = block->machine->trace;
  return &trace->queues[block->rank * trace->num_queues + number];
}

void kiln__trace_wgmma(emu_thread *thread, u32 number, long i, int first) {
  double *issued = &queue_of(thread->block, number)->issued[i % EMU_OPERATIONS];
  kiln__trace_pay(thread);
  kiln__trace_issue(thread);
  *issued = fmax(first ? 0.0 : *issued, kiln__trace_thread(thread)->clock);
}

double kiln__trace_wgmma_due(const emu_block *block, u32 number, long i, double *issued) {
  *issued = queue_of(block, number)->issued[i % EMU_OPERATIONS];
  return fmax(*issued, block->machine->trace->tensor_free[block->rank]);
}

void kiln__trace_wgmma_lands(const emu_block *block, u32 number, long i, const emu_operation *op) {
  emu_trace_queue *queue = queue_of(block, number);
  emu_trace_product *p = &queue->products[op->shape.group % EMU_GROUPS];
  double issued;
  const double begin = kiln__trace_wgmma_due(block, number, i, &issued);
  const double end = begin + op->shape.n * TRACE_WGMMA_COLUMN;
  if (p->group != op->shape.group) {
    p->group = op->shape.group;
    p->count = 0;
    p->site = op->site;
    p->columns = op->shape.n;
    p->issued = issued;
    p->begin = begin;
  }
  p->count++;
  p->end = end;
  block->machine->trace->tensor_free[block->rank] = end;
}

static void write_product(const emu_thread *thread, u32 number, const emu_trace_product *p,
                          double waited) {
  if (!kiln__trace_event(thread->block, "product", p->begin, p->end, p->site)) return;
  kiln__text_printf(thread->machine->trace->json,
                    ",\"warpgroup\":%u,\"name\":\"%c\",\"products\":%u,\"issued\":%lld,"
                    "\"waited\":%lld}",
                    number, kiln__trace_accumulator(p->site), p->count, llround(p->issued),
                    llround(waited));
}

void kiln__trace_wgmma_waited(emu_thread *thread, u32 number, long target, const char *site) {
  emu_trace_queue *queue = queue_of(thread->block, number);
  emu_trace_thread *t = kiln__trace_thread(thread);
  double end = 0.0;
  kiln__trace_pay(thread);
  for (long g = thread->wgmma.waited + 1; g <= target; g++)
    end = fmax(end, queue->products[g % EMU_GROUPS].end);
  kiln__trace_wait(thread, end, "wgmma_wait", 0, site);
  for (long g = thread->wgmma.waited + 1; g <= target; g++) {
    emu_trace_product *p = &queue->products[g % EMU_GROUPS];
    const int scores = kiln__trace_accumulator(p->site) == 's';
    const u32 values = p->columns / 2; /* of each lane */
    if (scores) t->debt += values * TRACE_SCORE;
    if (!scores) t->results = values;
    if (thread->index % EMU_WARPGROUP == 0) write_product(thread, number, p, t->clock);
  }
}
