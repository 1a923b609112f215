/* wgmma: asynchronous matrix products of a warpgroup.
 *
 * There is no meeting of the 128 threads at issue: each appends to its warpgroup's queue, the first
 * makes the operation and the others must bring the same operands. At the first operation on an
 * accumulator its values move into the queue and the thread's registers get a signalling NaN, which
 * any arithmetic would change; they come back when the thread touches them behind its own
 * wgmma_wait, and until then the poison must be intact: only touch_* keeps the compiler from moving
 * what uses the registers to the front of the wait. Operands, in shared memory and in registers,
 * are read when the operation lands: late, when all threads are blocked and one of them waits for
 * it. Operations of a warpgroup land in order. */
#include "runtime/emulator/wgmma.h"

#include <math.h>
#include <string.h>

#include "runtime/emulator/descriptor.h"
#include "runtime/emulator/matmul.h"
#include "runtime/emulator/trace.h"

#define POISON 0x7f81deadu /* a signalling NaN */

static emu_warpgroup *warpgroup_of(const emu_thread *thread) {
  const u32 number = thread->index / EMU_WARPGROUP;
  if (number >= thread->block->num_warpgroups)
    kiln__emu_fault("wgmma in warp %u, which is in no whole warpgroup", thread->warp);
  return &thread->block->warpgroups[number];
}

static emu_operation *operation(emu_warpgroup *group, long i) {
  return &group->operations[i % EMU_OPERATIONS];
}

void kiln__wgmma_create(emu_block *block) {
  emu_machine *machine = block->machine;
  block->num_warpgroups = machine->num_threads / EMU_WARPGROUP;
  if (block->num_warpgroups)
    block->warpgroups =
        kiln__machine_take(machine, block->num_warpgroups * sizeof *block->warpgroups);
}

/* ---- accumulators ---- Thread t holds rows g and g + 8 of its warp's 16, columns 8j + 2q and the
 * next, in d[4j .. 4j + 3]. */

static u32 fragment_row(u32 t) { return t / EMU_WARP * 16 + t % EMU_WARP / 4; }

static void copy_fragment(emu_accumulator *acc, u32 t, float *d, int to_queue) {
  for (u32 j = 0; j < acc->n / 8; j++) {
    for (u32 half = 0; half < 2; half++) {
      float *value = acc->values + (fragment_row(t) + 8 * half) * EMU_MAX_N + 8 * j + 2 * (t % 4);
      float *own = d + 4 * j + 2 * half;
      memcpy(to_queue ? value : own, to_queue ? own : value, 2 * sizeof *d);
    }
  }
}

static u32 find_accumulator(emu_thread *thread, emu_warpgroup *group, const float *d, u32 n,
                            const char *site) {
  const ptrdiff_t offset = (const char *)d - thread->top;
  u32 i = 0;
  while (i < EMU_ACCUMULATORS && group->accumulators[i].used &&
         group->accumulators[i].offset != offset)
    i++;
  if (i == EMU_ACCUMULATORS)
    kiln__emu_fault("%s: more than %u accumulators in one warpgroup", site, EMU_ACCUMULATORS);
  emu_accumulator *acc = &group->accumulators[i];
  if (!acc->used) {
    acc->used = 1;
    acc->offset = offset;
    acc->n = n;
    acc->values =
        kiln__machine_take(thread->machine, EMU_TILE_ROWS * EMU_MAX_N * sizeof *acc->values);
  } else if (acc->n != n) {
    kiln__emu_fault("%s: the accumulator was used with n = %u before", site, acc->n);
  }
  return i;
}

static void hold(emu_accumulator *acc, u32 t, float *d) {
  const int held = acc->held[t];
  acc->held[t] = EMU_IN_FLIGHT;
  if (held) return;
  copy_fragment(acc, t, d, 1);
  const u32 poison = POISON;
  for (u32 i = 0; i < acc->n / 2; i++) memcpy(&d[i], &poison, sizeof poison);
}

static void check_poison(const emu_thread *thread, const emu_accumulator *acc, const char *site) {
  const float *d = (const float *)(thread->top + acc->offset);
  for (u32 i = 0; i < acc->n / 2; i++) {
    u32 bits;
    memcpy(&bits, &d[i], sizeof bits);
    if (bits != POISON)
      kiln__emu_fault("%s: accumulator register %u was written while its wgmma was in flight, or "
                      "before it was touched behind the wait",
                      site, i);
  }
}

/* ---- landing ---- */

static const u16 *chunk_at(const emu_block *block, u64 descriptor, u32 mn, u32 k, int mn_major) {
  return (const u16 *)(block->shared + kiln__descriptor_chunk(descriptor, mn, k, mn_major));
}

/* One of the halves of a 32-deep product of 8-bit numbers, or the whole of a 16-deep one. */
typedef struct slice {
  const emu_block *block;
  const emu_operation *op;
  u32 half;
} slice;

/* 16 numbers of a K-major operand, two chunks or one. */
static void read_depth(const slice *p, u64 descriptor, u32 mn, float *to) {
  const int dtype = p->op->shape.dtype;
  if (dtype == EMU_E4M3) {
    kiln__matmul_widen_e4m3(to, (const u8 *)chunk_at(p->block, descriptor, mn, 8 * p->half, 0), 16);
    return;
  }
  for (u32 k = 0; k < EMU_TILE_DEPTH; k += 8)
    kiln__matmul_widen(to + k, chunk_at(p->block, descriptor, mn, k, 0), 8, dtype);
}

/* a's registers 0 and 1 hold the lower half of the depth, 2 and 3 the upper one. */
static void load_registers(const slice *p, float *a) {
  const emu_operation *op = p->op;
  u16 rows[EMU_TILE_ROWS * EMU_TILE_DEPTH];
  for (u32 t = 0; t < EMU_WARPGROUP; t++) {
    for (u32 i = 0; i < 4; i++) {
      const u32 row = (fragment_row(t) + 8 * (i % 2)) * EMU_TILE_DEPTH;
      const u32 *from = op->registers[t] + i;
      if (op->shape.dtype != EMU_E4M3)
        memcpy(rows + row + 2 * (t % 4) + 8 * (i / 2), from, sizeof *from);
      else if (i / 2 == p->half)
        kiln__matmul_widen_e4m3(a + row + 4 * (t % 4), (const u8 *)from, 4);
    }
  }
  if (op->shape.dtype != EMU_E4M3)
    kiln__matmul_widen(a, rows, EMU_TILE_ROWS * EMU_TILE_DEPTH, op->shape.dtype);
}

/* a as rows of 16 fp32 */
static void load_a(const slice *p, float *a) {
  const emu_shape *s = &p->op->shape;
  float column[8];
  if (s->from_registers) {
    load_registers(p, a);
  } else if (s->major >> 1) {
    for (u32 k = 0; k < EMU_TILE_DEPTH; k++) {
      for (u32 row = 0; row < EMU_TILE_ROWS; row += 8) {
        kiln__matmul_widen(column, chunk_at(p->block, s->a, row, k, 1), 8, s->dtype);
        for (u32 i = 0; i < 8; i++) a[(row + i) * EMU_TILE_DEPTH + k] = column[i];
      }
    }
  } else {
    for (u32 row = 0; row < EMU_TILE_ROWS; row++)
      read_depth(p, s->a, row, a + row * EMU_TILE_DEPTH);
  }
}

/* b as 16 rows of fp32, EMU_MAX_N apart */
static void load_b(const slice *p, float *b) {
  const emu_shape *s = &p->op->shape;
  float column[EMU_TILE_DEPTH];
  if (s->major & 1) {
    for (u32 k = 0; k < EMU_TILE_DEPTH; k++)
      for (u32 n = 0; n < s->n; n += 8)
        kiln__matmul_widen(b + k * EMU_MAX_N + n, chunk_at(p->block, s->b, n, k, 1), 8, s->dtype);
    return;
  }
  for (u32 n = 0; n < s->n; n++) {
    read_depth(p, s->b, n, column);
    for (u32 k = 0; k < EMU_TILE_DEPTH; k++) b[k * EMU_MAX_N + n] = column[k];
  }
}

static void multiply(const emu_block *block, emu_warpgroup *group, const emu_operation *op) {
  float a[EMU_TILE_ROWS * EMU_TILE_DEPTH], b[EMU_TILE_DEPTH * EMU_MAX_N];
  float *d = group->accumulators[op->shape.accumulator].values;
  for (u32 row = 0; !op->shape.accumulate && row < EMU_TILE_ROWS; row++)
    memset(d + row * EMU_MAX_N, 0, op->shape.n * sizeof *d);
  for (u32 half = 0; half < (op->shape.dtype == EMU_E4M3 ? 2u : 1u); half++) {
    const slice p = {block, op, half};
    load_a(&p, a);
    load_b(&p, b);
    const emu_product product = {d, a, b, EMU_TILE_ROWS, op->shape.n, EMU_MAX_N, EMU_MAX_N};
    kiln__matmul_accumulate(&product);
  }
}

/* Groups that all threads have committed and whose operations have landed. */
static void finish_groups(emu_block *block, emu_warpgroup *group) {
  while (group->groups_landed < group->groups) {
    const long i = group->groups_landed % EMU_GROUPS;
    if (group->group_count[i] < EMU_WARPGROUP || group->group_end[i] > group->landed) return;
    group->groups_landed++;
    emu_thread *threads = block->threads + (group - block->warpgroups) * EMU_WARPGROUP;
    for (u32 t = 0; group->waiting && t < EMU_WARPGROUP; t++) {
      if (threads[t].wait.kind != EMU_WAIT_WGMMA || threads[t].wait.target > group->groups_landed)
        continue;
      kiln__scheduler_wake(&threads[t]);
      group->waiting--;
    }
  }
}

static int can_land(emu_warpgroup *group) {
  return group->landed < group->issued && operation(group, group->landed)->count == EMU_WARPGROUP;
}

static void land(emu_block *block, emu_warpgroup *group) {
  const emu_operation *op = operation(group, group->landed);
  if (block->machine->trace)
    kiln__trace_wgmma_lands(block, (u32)(group - block->warpgroups), group->landed, op);
  multiply(block, group, op);
  group->landed++;
  finish_groups(block, group);
}

/* Lands one operation of a warpgroup, from warpgroup `start` on. */
static int land_one(emu_machine *machine, u32 start, int demanded) {
  const u32 each = machine->num_threads / EMU_WARPGROUP, all = machine->num_blocks * each;
  for (u32 i = 0; i < all; i++) {
    emu_block *block = &machine->blocks[(start + i) % all / each];
    emu_warpgroup *group = &block->warpgroups[(start + i) % all % each];
    if ((demanded && !group->waiting) || !can_land(group)) continue;
    land(block, group);
    return 1;
  }
  return 0;
}

int kiln__wgmma_land_demanded(emu_machine *machine) { return land_one(machine, 0, 1); }

int kiln__wgmma_land_any(emu_machine *machine) {
  return land_one(machine, kiln__scheduler_random(machine), 0);
}

/* EMU_TIMED: the operation that the tensor cores begin next, the one issued first among those that
 * wait for them. */
static emu_warpgroup *earliest(const emu_machine *machine, emu_block **block, double *due) {
  const u32 each = machine->num_threads / EMU_WARPGROUP;
  emu_warpgroup *best = NULL;
  double issued = INFINITY;
  *due = INFINITY;
  for (u32 i = 0; i < machine->num_blocks * each; i++) {
    emu_block *b = &machine->blocks[i / each];
    emu_warpgroup *group = &b->warpgroups[i % each];
    if (!can_land(group)) continue;
    double since;
    const double clock = kiln__trace_wgmma_due(b, i % each, group->landed, &since);
    if (clock > *due || (clock == *due && since >= issued)) continue;
    best = group;
    issued = since;
    *block = b;
    *due = clock;
  }
  return best;
}

double kiln__wgmma_due(const emu_machine *machine) {
  emu_block *block;
  double due;
  earliest(machine, &block, &due);
  return due;
}

void kiln__wgmma_land_due(emu_machine *machine) {
  emu_block *block = NULL;
  double due;
  emu_warpgroup *group = earliest(machine, &block, &due);
  if (group) land(block, group);
}

/* ---- operands in registers ---- */

static void check_taken(const emu_taken *taken, const char *site) {
  if (memcmp(taken->values, taken->registers, sizeof taken->values) != 0)
    kiln__emu_fault("%s: operand registers of %s were written before they were touched behind its "
                    "wait",
                    site, taken->site);
}

/* Those among `count` registers are touched, or read by another operation. */
static void release_taken(emu_thread *thread, const u32 *registers, u32 count, const char *site) {
  emu_wgmma_part *part = &thread->wgmma;
  for (u32 i = part->num_taken; i-- > 0;) {
    const emu_taken *taken = &part->taken[i];
    if (taken->registers < registers || taken->registers >= registers + count) continue;
    check_taken(taken, site);
    part->taken[i] = part->taken[--part->num_taken];
  }
}

/* A full list forgets: a fault may then go unseen, never the reverse. */
static void remember_taken(emu_thread *thread, const emu_operation *op, u32 t) {
  emu_wgmma_part *part = &thread->wgmma;
  if (part->num_taken == EMU_TAKEN) return;
  emu_taken *taken = &part->taken[part->num_taken++];
  taken->registers = op->registers[t];
  taken->site = op->site;
  memcpy(taken->values, op->registers_at_issue[t], sizeof taken->values);
}

/* ---- instructions ---- */

static void begin_operation(emu_operation *op, const emu_shape *shape, const char *site) {
  op->shape = *shape;
  op->site = site;
  op->count = 0;
  if (shape->n < 8 || shape->n > EMU_MAX_N || shape->n % 8)
    kiln__emu_fault("%s: n = %u", site, shape->n);
  if (!shape->from_registers) kiln__descriptor_check(shape->a, site);
  kiln__descriptor_check(shape->b, site);
}

static void check_same(const emu_operation *op, const emu_shape *shape, const char *site) {
  const emu_shape *s = &op->shape;
  if (s->n == shape->n && s->dtype == shape->dtype && s->major == shape->major &&
      s->from_registers == shape->from_registers && s->accumulate == shape->accumulate &&
      s->a == shape->a && s->b == shape->b && s->accumulator == shape->accumulator &&
      s->group == shape->group)
    return;
  kiln__emu_fault("%s: operands differ within the warpgroup (descriptors 0x%llx 0x%llx against "
                  "0x%llx 0x%llx of %s)",
                  site, shape->a, shape->b, s->a, s->b, op->site);
}

static void append(emu_thread *thread, emu_warpgroup *group, const emu_shape *shape,
                   const u32 *registers, const char *site) {
  emu_wgmma_part *part = &thread->wgmma;
  const u32 t = thread->index % EMU_WARPGROUP;
  const long i = part->issued++;
  if (thread->machine->trace)
    kiln__trace_wgmma(thread, thread->index / EMU_WARPGROUP, i, i == group->issued);
  if (i >= group->landed + EMU_OPERATIONS)
    kiln__emu_fault("%s: more than %d wgmma in flight", site, EMU_OPERATIONS);
  emu_operation *op = operation(group, i);
  if (i == group->issued) {
    group->issued++;
    begin_operation(op, shape, site);
  } else {
    check_same(op, shape, site);
  }
  kiln__wgmma_meet(thread, group, op, part->open ? operation(group, i - 1) : NULL);
  part->open++;
  part->last[shape->accumulator] = i;
  op->registers[t] = registers;
  if (registers) {
    release_taken(thread, registers, 1, site);
    memcpy(op->registers_at_issue[t], registers, sizeof op->registers_at_issue[t]);
    kiln__proxy_group(thread, registers, shape->group);
  }
  if (++op->count < EMU_WARPGROUP) return;
  kiln__wgmma_order(thread, group, op);
}

void kiln__emu_wgmma(int n, int dtype, int major, float *d, const u32 *registers, u64 a, u64 b,
                     int accumulate, const char *site) {
  emu_thread *thread = kiln__emu_current.thread;
  thread->site = site;
  emu_warpgroup *group = warpgroup_of(thread);
  if (!thread->wgmma.fenced && thread->machine->checking)
    kiln__emu_fault("%s without wgmma_fence since the last commit or wait", site);
  const emu_shape shape = {.n = (u32)n,
                           .dtype = dtype,
                           .major = major,
                           .from_registers = registers != NULL,
                           .accumulate = accumulate != 0,
                           .a = a,
                           .b = b,
                           .accumulator = find_accumulator(thread, group, d, (u32)n, site),
                           .group = (int)thread->wgmma.groups + 1};
  hold(&group->accumulators[shape.accumulator], thread->index % EMU_WARPGROUP, d);
  append(thread, group, &shape, registers, site);
  if (thread->machine->schedule == EMU_EAGER)
    while (can_land(group)) land(thread->block, group);
}

void kiln__emu_wgmma_fence(const char *site) { kiln__emu_enter(site)->wgmma.fenced = 1; }

void kiln__emu_wgmma_commit(const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_warpgroup *group = warpgroup_of(thread);
  emu_wgmma_part *part = &thread->wgmma;
  const long i = part->groups++;
  part->open = 0;
  part->fenced = 0;
  if (i >= group->groups_landed + EMU_GROUPS)
    kiln__emu_fault("%s: more than %d wgmma groups in flight", site, EMU_GROUPS);
  if (i == group->groups) {
    group->groups++;
    group->group_end[i % EMU_GROUPS] = part->issued;
    group->group_count[i % EMU_GROUPS] = 0;
  } else if (group->group_end[i % EMU_GROUPS] != part->issued) {
    kiln__emu_fault("%s: the warpgroup's threads commit different operations", site);
  }
  if (++group->group_count[i % EMU_GROUPS] == EMU_WARPGROUP) finish_groups(thread->block, group);
}

/* Registers that operations read must still hold what they held at issue. */
static void check_registers(emu_thread *thread, emu_warpgroup *group, long end, const char *site) {
  const u32 t = thread->index % EMU_WARPGROUP;
  for (long i = thread->wgmma.waited_end; i < end; i++) {
    const emu_operation *op = operation(group, i);
    if (!op->registers[t]) continue;
    if (memcmp(op->registers_at_issue[t], op->registers[t], sizeof op->registers_at_issue[t]) != 0)
      kiln__emu_fault("%s: an operand register of %s was written while it was in flight", site,
                      op->site);
    remember_taken(thread, op, t);
  }
}

/* The results are there for whoever touches them. */
static void end_flights(const emu_thread *thread, emu_warpgroup *group, long end,
                        const char *site) {
  const u32 t = thread->index % EMU_WARPGROUP;
  for (u32 i = 0; i < EMU_ACCUMULATORS; i++) {
    emu_accumulator *acc = &group->accumulators[i];
    if (!acc->used || acc->held[t] != EMU_IN_FLIGHT || thread->wgmma.last[i] >= end) continue;
    check_poison(thread, acc, site);
    acc->held[t] = EMU_WAITED;
  }
}

void kiln__emu_wgmma_wait(int pending, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_warpgroup *group = warpgroup_of(thread);
  emu_wgmma_part *part = &thread->wgmma;
  const long target = part->groups - pending;
  if (part->open && thread->machine->checking)
    kiln__emu_fault("%s with wgmma that are not committed", site);
  part->fenced = 0;
  if (target <= part->waited) return;
  if (group->groups_landed < target) {
    group->waiting++;
    kiln__scheduler_block(thread, (emu_wait){EMU_WAIT_WGMMA, group, (int)target, 0, site});
  }
  const long end = group->group_end[(target - 1) % EMU_GROUPS];
  check_registers(thread, group, end, site);
  if (thread->machine->trace)
    kiln__trace_wgmma_waited(thread, thread->index / EMU_WARPGROUP, target, site);
  part->waited = target;
  part->waited_end = end;
  end_flights(thread, group, end, site);
  if (!thread->machine->checking) return;
  thread->knows.wgmma_done = (int)target;
  thread->knows.version++;
  kiln__proxy_waited(thread, (int)target);
}

/* ---- register barriers for the compiler ---- */

static void give_back(const emu_thread *thread, emu_accumulator *acc, const char *site) {
  const u32 t = thread->index % EMU_WARPGROUP;
  if (acc->held[t] == EMU_IN_FLIGHT)
    kiln__emu_fault("%s: the accumulator is used while its wgmma is in flight", site);
  check_poison(thread, acc, site);
  copy_fragment(acc, t, (float *)(thread->top + acc->offset), 0);
  acc->held[t] = EMU_NOT_HELD;
}

/* Stands behind a wait, in front of what uses the registers. */
void kiln__emu_touch(const void *registers, int count, const char *site) {
  emu_thread *thread = kiln__emu_current.thread;
  const u32 number = thread->index / EMU_WARPGROUP, t = thread->index % EMU_WARPGROUP;
  if (number >= thread->block->num_warpgroups) return;
  emu_warpgroup *group = &thread->block->warpgroups[number];
  const ptrdiff_t offset = (const char *)registers - thread->top;
  release_taken(thread, registers, (u32)count, site);
  for (u32 i = 0; i < EMU_ACCUMULATORS; i++) {
    emu_accumulator *acc = &group->accumulators[i];
    if (acc->used && acc->offset == offset && acc->held[t]) give_back(thread, acc, site);
  }
}

/* Results that nobody has touched cannot have been used. */
void kiln__wgmma_exit(emu_thread *thread) {
  const u32 number = thread->index / EMU_WARPGROUP, t = thread->index % EMU_WARPGROUP;
  if (thread->wgmma.open || thread->wgmma.groups > thread->wgmma.waited)
    kiln__emu_fault("the thread ends with wgmma in flight: wgmma_wait is missing");
  if (number >= thread->block->num_warpgroups) return;
  const emu_warpgroup *group = &thread->block->warpgroups[number];
  for (u32 i = 0; i < EMU_ACCUMULATORS; i++)
    if (group->accumulators[i].used && group->accumulators[i].held[t])
      kiln__emu_fault("the thread ends and has not touched the results of wgmma since its wait: "
                      "touch_f32 is missing");
}
