/* The model clock of the emulator, and what happens by it: the events behind kiln_plan_trace.
 *
 * Invariant: machine->trace is NULL in every launch but a trace, and then each hook is one branch
 * that is not taken. A trace runs under EMU_TIMED: of all threads that can run and all work in
 * flight the earliest goes first, and a thread that waits goes on at the time of what it waited
 * for. Each thread has a clock of its own; lanes that meet go on with the latest. Events are those
 * of lane 0 of each warp, of one block. Times are clocks from the block's start; the costs are
 * below: a model, no measurement.
 *
 * trace.c: threads, barriers, text. trace_async.c: TMA, cp.async, wgmma. Called by the instructions
 * and by scheduler.c. */
#ifndef KILN_EMULATOR_TRACE_H
#define KILN_EMULATOR_TRACE_H

#include "runtime/device.h"
#include "runtime/emulator/machine.h"
#include "runtime/emulator/wgmma.h"

/* Clocks. The rates are those of one SM of an H100 or A100, as far as their papers give them. */
#define TRACE_ISSUE        2.0   /* an instruction of a thread */
#define TRACE_MATRIX_MOVE  4.0   /* ldmatrix, stmatrix: 512 bytes at 128 a clock */
#define TRACE_SHUFFLE      4.0   /* shuffles, votes, reductions */
#define TRACE_MMA          8.0   /* mma.m16n8k16; every fourth warp has the same tensor core */
#define TRACE_WGMMA_COLUMN 0.5   /* wgmma m64nNk16: N of these, of the block's tensor cores */
#define TRACE_SCORE        10.0  /* a warp's softmax, for a score a lane: ex2 8, the rest 2 */
#define TRACE_RESULT       2.0   /* a warp's last division and rounding, an output a lane */
#define TRACE_LATENCY      600.0 /* from device memory, and as much to it */
#define TRACE_READ_LATENCY 100.0 /* of shared memory, by a TMA store */
#define TRACE_BYTES        64.0  /* between shared memory and the L2 cache, a clock */

#define TRACE_COPY_GROUPS 16

/* A run of one warp's mma.sync on one accumulator array. */
typedef struct emu_run {
  const char *site; /* of its first product; NULL = none is open */
  double begin, end;
  const char *low, *high; /* accumulators */
  u32 count;
} emu_run;

typedef struct emu_trace_thread {
  double clock;
  double debt;       /* of a softmax whose scores are there; paid at the next step that shows it */
  u32 results;       /* output columns that were waited for and not stored yet */
  double read, done; /* of the last bulk store */
  double copied[TRACE_COPY_GROUPS]; /* when a group of cp.async has landed */
  emu_run run;
  double output_begin, output_end; /* of the stores at hand; end 0 = none */
} emu_trace_thread;

typedef struct emu_trace_barrier {
  double due;  /* the latest arrival of the present phase */
  double done; /* of the phase before */
} emu_trace_barrier;

/* A group of wgmma between commits. */
typedef struct emu_trace_product {
  int group;
  const char *site;
  u32 count, columns;
  double issued, begin, end;
} emu_trace_product;

typedef struct emu_trace_queue {
  double issued[EMU_OPERATIONS];
  emu_trace_product products[EMU_GROUPS];
} emu_trace_queue;

/* What one group of cp.async of all threads brings from one allocation. */
typedef struct emu_trace_batch {
  struct emu_trace_batch *next;
  int group;
  const char *source; /* the allocation */
  const char *from;   /* the lowest address */
  u32 to;
  i64 bytes;
  double begin, end, waited;
  const char *site;
} emu_trace_batch;

struct emu_trace {
  i64 block; /* of the grid */
  kiln__text *json;
  u32 count;                    /* events */
  double now;                   /* of the work that lands */
  double last;                  /* the end of the last event */
  emu_trace_thread *threads;    /* of all blocks of the cluster, as the rest */
  emu_trace_barrier *mbarriers; /* EMU_MBARRIERS a block */
  double *named;                /* EMU_NAMED_BARRIERS a block */
  emu_trace_queue *queues;      /* a warpgroup each */
  u32 num_queues;               /* of a block */
  double tensor_free[EMU_MAX_CLUSTER], core_free[EMU_MAX_CLUSTER][4];
  double load_free, store_free;
  emu_trace_batch *batches;
};

void kiln__trace_begin(emu_machine *machine, const kiln__trace *order);
void kiln__trace_end(emu_machine *machine); /* completes the text */

/* ---- for trace_async.c ---- */

emu_trace_thread *kiln__trace_thread(const emu_thread *thread);
/* Writes the head of an event; the caller adds members and "}". 0 when the block is another one. */
int kiln__trace_event(const emu_block *block, const char *kind, double begin, double end,
                      const char *site);
void kiln__trace_pay(emu_thread *thread);
/* Sets the clock to `end` where that is later; the time between is the warp's wait. */
void kiln__trace_wait(emu_thread *thread, double end, const char *name, int index,
                      const char *site);
/* "k_full" and 1 of the mbarrier's name "k_full(smem, i)#1" */
void kiln__trace_name(const emu_mbarrier *m, char *name, size_t size, int *index);
/* The wrapper's name and operands: what follows "file:line: " in a site. */
const char *kiln__trace_text(const char *site);
/* The accumulator that a product's text names: "s" of "wgmma_ss_n128_bf16(s, ...". */
char kiln__trace_accumulator(const char *site);

/* ---- threads ---- */

void kiln__trace_issue(emu_thread *thread);  /* an instruction */
void kiln__trace_output(emu_thread *thread); /* one of those that store results */
void kiln__trace_exit(emu_thread *thread);

/* ---- meetings ---- */

void kiln__trace_meet(emu_warp *warp);
void kiln__trace_named_arrive(emu_thread *thread, int id);
void kiln__trace_named_done(emu_thread *thread, int id); /* for each that waited */
void kiln__trace_named_clear(emu_block *block, int id);

/* ---- mbarriers ---- */

void kiln__trace_arrive(emu_thread *thread, const emu_block *block, const emu_mbarrier *m);
void kiln__trace_landed(const emu_block *block, const emu_mbarrier *m);
void kiln__trace_phase(const emu_block *block, const emu_mbarrier *m); /* one is complete */
void kiln__trace_waited(emu_thread *thread, const emu_mbarrier *m, const char *site);

/* ---- asynchronous work ---- */

void kiln__trace_transfer(emu_thread *thread, emu_transfer *t, u32 bytes);
/* now = due; a store's next step becomes due */
void kiln__trace_transfer_lands(emu_machine *machine, emu_transfer *t, u32 bytes);
void kiln__trace_bulk_waited(emu_thread *thread, int read, const char *site);

void kiln__trace_copy(emu_thread *thread, const emu_copy *copy);
void kiln__trace_copies_waited(emu_thread *thread, int group, const char *site);

/* number: of the warpgroup; i: of the operation; first: nobody has issued it before. */
void kiln__trace_wgmma(emu_thread *thread, u32 number, long i, int first);
/* When the tensor cores can begin it, and when it was issued. */
double kiln__trace_wgmma_due(const emu_block *block, u32 number, long i, double *issued);
void kiln__trace_wgmma_lands(const emu_block *block, u32 number, long i, const emu_operation *op);
void kiln__trace_wgmma_waited(emu_thread *thread, u32 number, long target, const char *site);

#endif
