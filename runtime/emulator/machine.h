/* The emulated machine: one cluster of blocks at a time, a fiber for every CUDA thread.
 *
 * Invariant: everything below the machine lives from kiln__machine_begin to kiln__machine_end of
 * one cluster, in memory from kiln__machine_take; a fault leaves all fibers where they are. One
 * host thread drives a machine, or several in turns where blocks talk; kiln__emu_current names the
 * emulated thread that runs on it, because an emulated instruction gets no context, as CUDA's do
 * not.
 *
 *   launch.c      the launch: clusters handed to machines
 *   world.c       clusters that are resident together, because they talk
 *   machine.c     begin, end, take
 *   scheduler.c   who runs next, when asynchronous work lands
 *   warp.c barrier.c mbarrier.c shared.c global.c atomic.c copy.c mma.c tma.c wgmma.c registers.c
 *                 the instructions
 *   clocks.c shadow.c proxy.c wgmma_order.c peer.c past.c global_shadow.c
 *                 happens-before
 *   report.c      faults and deadlocks
 *   trace.c trace_async.c
 *                 the model clock, and what happens by it
 *   crash.c       SIGSEGV becomes a report */
#ifndef KILN_EMULATOR_MACHINE_H
#define KILN_EMULATOR_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/emulator/api.h"
#include "runtime/emulator/arena.h"
#include "runtime/emulator/clocks.h"
#include "runtime/emulator/fiber.h"
#include "runtime/emulator/global_shadow.h"
#include "runtime/emulator/memory.h"
#include "runtime/emulator/shadow.h"
#include "runtime/emulator/tensor_map.h"

#define EMU_SHARED_BASE    0x400u /* the system keeps the first KB, as on sm_80 and later */
#define EMU_MAX_CLUSTER    16u
#define EMU_MAX_THREADS    1024u
#define EMU_MAX_WARPS      32u
#define EMU_WARP           32u
#define EMU_WARPGROUP      128u
#define EMU_MBARRIERS      64u
#define EMU_NAMED_BARRIERS 16u
#define EMU_REGISTER_FILE  65536
#define EMU_MESSAGE_BYTES  3072u
#define EMU_HOST_THREADS   16

typedef enum emu_schedule {
  EMU_LATE,   /* asynchronous work lands when nothing else can run and somebody waits for it */
  EMU_EAGER,  /* it lands at issue */
  EMU_RANDOM, /* seeded, at any moment the ISA allows, in pieces */
  EMU_TIMED   /* by the model clock, the earliest first: for traces alone (trace.h) */
} emu_schedule;

/* ---- threads ---- */

typedef enum emu_state { EMU_RUNNABLE, EMU_BLOCKED, EMU_DONE } emu_state;

typedef enum emu_wait_kind {
  EMU_WAIT_NONE,
  EMU_WAIT_MBARRIER,
  EMU_WAIT_TRY, /* for an mbarrier, for a while */
  EMU_WAIT_WARP,
  EMU_WAIT_NAMED,
  EMU_WAIT_WGMMA,
  EMU_WAIT_BULK,
  EMU_WAIT_REGISTERS,
  EMU_WAIT_CLUSTER,
  EMU_WAIT_WORD
} emu_wait_kind;

typedef struct emu_wait {
  emu_wait_kind kind;
  const void *object;
  int target; /* parity, barrier number, group, registers, value */
  int read;   /* bulk groups: only their reads of shared memory are waited for */
  const char *site;
} emu_wait;

/* An ldmatrix whose registers may still be on their way: see proxy.c. */
typedef struct emu_load {
  const u32 *registers;
  int clock; /* EMU_GENERIC when it was issued */
  int group; /* of the wgmma that takes them as A; 0 = none yet */
} emu_load;

#define EMU_LOADS 64

typedef struct emu_proxy {
  emu_load loads[EMU_LOADS];
  u32 num_loads;
  int unfenced; /* EMU_GENERIC at the first write without a fence.proxy.async behind it; 0 = none */
} emu_proxy;

/* One cp.async that has not landed. */
typedef struct emu_copy {
  const void *from;
  const char *site;
  u32 to;
  int bytes, group;
} emu_copy;

typedef struct emu_copies {
  emu_copy *pending; /* in the order of issue */
  u32 count, capacity;
  int committed; /* groups */
  int last;      /* the group of the last copy, and its place */
  const char *last_site;
} emu_copies;

typedef struct emu_bulk {
  int committed; /* groups */
  int open;      /* stores since the last commit */
  int last;      /* the group of the last store */
} emu_bulk;

#define EMU_ACCUMULATORS 8  /* register arrays that wgmma of one warpgroup accumulate into */
#define EMU_TAKEN        64 /* operands in registers between wait and touch, for each thread */

/* Four operand registers of a wgmma that has been waited for and, until they are touched, still
 * have to hold what it read. */
typedef struct emu_taken {
  const u32 *registers;
  u32 values[4];
  const char *site;
} emu_taken;

/* A thread's part in its warpgroup's queue: see wgmma.c. */
typedef struct emu_wgmma_part {
  long issued, groups, waited,
      waited_end;              /* operations; groups committed, waited for; operations of those */
  long last[EMU_ACCUMULATORS]; /* the last operation on each accumulator */
  u32 open;                    /* operations since the last commit */
  int fenced;
  u64 version; /* of the thread's knowledge at its last operation */
  emu_taken taken[EMU_TAKEN];
  u32 num_taken;
} emu_wgmma_part;

struct emu_thread {
  void *sp;
  char *stack; /* lowest address */
  char *top;   /* where it begins: a local lies at the same distance in all threads */
  emu_machine *machine;
  emu_block *block;
  u32 index, warp, lane;
  emu_state state;
  emu_wait wait;
  int timed_out;    /* the last try of an mbarrier */
  const char *site; /* of the last instruction */
  emu_knowledge knows;
  emu_proxy proxy;
  emu_copies copies;
  emu_bulk bulk;
  emu_wgmma_part wgmma;
  int registers;
  emu_fence fence;       /* the last fence_gpu */
  const emu_past *told;  /* what its atomics tell behind that fence, once one has */
  const emu_past *heard; /* by relaxed reads since; counts from the next fence_gpu on */
};

/* ---- warps and barriers ---- */

typedef struct emu_warp emu_warp;
typedef void emu_action(emu_warp *warp);

/* What a lane brings to a warp's instruction, and what it takes away. */
typedef struct emu_offer {
  u32 value, argument, result;
  void *out;
  const void *in[2];
} emu_offer;

struct emu_warp {
  emu_thread *threads; /* the 32 */
  u32 runnable;        /* bit for each lane */
  u32 priority;        /* EMU_RANDOM: the highest runs */
  u32 arrived;
  emu_action *action;
  const char *site;
  emu_offer offers[EMU_WARP];
};

typedef struct emu_named {
  u32 expected, count;
  emu_sum sum;
  u8 arrived[EMU_MAX_THREADS]; /* bit 0: by arrive, bit 1: by sync */
} emu_named;

typedef struct emu_mbarrier {
  char name[64]; /* "k_full + 8 * s#1": the text given to bar_init and a number */
  u32 at, index, arrivals;
  int pending, bytes; /* arrivals and transaction bytes missing in this phase */
  u32 phase;
  int in_flight; /* TMA loads */
  int fenced;    /* fence.mbarrier_init was executed */
  u32 waiting;   /* threads */
  emu_mark initialised;
  emu_sum sum;
  emu_snapshot *done;
  u8 waits[EMU_MAX_THREADS]; /* 1 + parity of a wait that has not returned yet */
  u8 tried[EMU_MAX_THREADS]; /* a try has been made */
} emu_mbarrier;

/* ---- blocks ---- */

typedef struct emu_warpgroup emu_warpgroup; /* wgmma.h */

/* The last access of one component to a block's shared memory from outside: see peer.c. */
typedef struct emu_touch {
  const char *site;
  int value; /* when it is over; 0 = there was none */
} emu_touch;

struct emu_block {
  emu_machine *machine;
  u32 rank;     /* in the cluster */
  i64 index;    /* in the grid */
  u32 alive;    /* threads */
  char *shared; /* address 0 of the shared window */
  emu_thread *threads;
  emu_warp *warps;
  emu_named *named;
  emu_mbarrier *mbarriers;
  u32 num_mbarriers;
  short *mbarrier_at; /* for each 8 bytes: index of the mbarrier, or -1 */
  emu_warpgroup *warpgroups;
  u32 num_warpgroups;
  emu_shadow shadow;
  int free_registers;
  emu_touch *touched; /* for each component; NULL while there was none */
  emu_sum exit_sum;   /* what the threads knew that have ended */
};

/* ---- the machine ---- */

/* A bulk copy that has not landed: see transfer.h. A box of a tensor (tma.c), or bytes in a row
 * (bulk.c), which are rows of 16 bytes. */
typedef struct emu_transfer {
  int store;        /* to global memory */
  int add;          /* stores: the numbers there grow */
  int dtype;        /* of those numbers */
  emu_block *block; /* whose shared memory is read or written, at `at` */
  u32 at, width;    /* bytes of a row in shared memory */
  int is_box;
  TensorMap map; /* boxes */
  int coordinates[EMU_RANK];
  char *flat;        /* in global memory; NULL in a copy from shared memory */
  emu_block *source; /* of that: whose, and where */
  u32 source_at;
  const emu_allocation *in; /* where the tensor or the bytes lie */
  const char *site;
  emu_mbarrier *mbarrier;        /* loads */
  u32 rows, next_row, first_row; /* loads land row by row, from any row on */
  emu_thread *owner;             /* stores */
  int group;
  char *staged;             /* stores: what was read from shared memory, then NULL no more */
  double issued, read, due; /* by the model clock */
} emu_transfer;

typedef struct emu_launch emu_launch; /* launch.h */
typedef struct emu_trace emu_trace;   /* trace.h */
typedef struct emu_world emu_world;   /* world.h */

struct emu_machine {
  const emu_launch *launch;
  emu_stacks stacks;      /* one for each thread of a cluster and one for the scheduler */
  void *home, *scheduler; /* where the host's thread and the scheduler's fiber go on */
  u64 random;
  emu_schedule schedule;
  u64 starve;
  u32 num_blocks, num_threads, num_warps; /* of the cluster; of a block */
  u32 shared_bytes;
  int checking;
  emu_block *blocks;
  emu_clocks clocks;
  emu_transfer *transfers;
  u32 num_transfers, capacity_transfers;
  u32 cluster_count; /* threads at the cluster's barrier */
  emu_sum cluster_sum;
  u32 last_warp;             /* where the scheduler goes on looking */
  emu_global_shadow *global; /* of the host thread */
  emu_world *world;          /* NULL where blocks do not talk */
  int gives_way;             /* at the next step another cluster may run */
  int stuck;                 /* only another cluster can help */
  u64 stuck_at;              /* the world's changes then */
  int resident, ended;       /* a cluster is on it; and has ended */
  u32 talks;                 /* steps by which blocks talk */
  int polled;                /* a thread has read a flag and gave way */
  u32 polls;                 /* how often, since a thread has blocked */
  u32 time_outs;             /* of tries, since a phase of an mbarrier was completed */
  emu_trace *trace;          /* NULL but in a trace */
  emu_arena arena;           /* what lives as long as the cluster */
  char *windows;             /* shared memory of the blocks, each with a guard page */
  char *message;             /* EMU_MESSAGE_BYTES; "" while there is no fault */
  i64 cluster;               /* number in the grid */
};

typedef struct emu_current {
  emu_thread *thread;
  emu_machine *machine;
} emu_current;

extern _Thread_local emu_current kiln__emu_current __attribute__((tls_model("initial-exec")));

/* Around any number of clusters: the memory that they use one after another. 0, or -1 without. */
int kiln__machine_open(emu_machine *machine);
void kiln__machine_close(emu_machine *machine);
void kiln__machine_begin(emu_machine *machine, i64 cluster);
void kiln__machine_end(emu_machine *machine);
void *kiln__machine_take(emu_machine *machine, size_t bytes); /* zeroed; never NULL */

/* ---- scheduler.c ---- */

void kiln__scheduler_start(emu_machine *machine, i64 cluster);
/* Runs on until the cluster has ended, gives way to others, or has a fault: machine->ended,
 * ->stuck, ->message. */
void kiln__scheduler_resume(emu_machine *machine);
u32 kiln__scheduler_random(emu_machine *machine);
void kiln__scheduler_yield(emu_thread *thread);
/* Blocks the current thread until kiln__scheduler_wake. */
void kiln__scheduler_block(emu_thread *thread, emu_wait wait);
void kiln__scheduler_sleep(emu_thread *thread); /* the same, thread->wait is set */
void kiln__scheduler_wake(emu_thread *thread);
/* Gives way to other warps and to what they wait for: between reads of a flag. */
void kiln__scheduler_poll(emu_thread *thread);
/* Before a step by which blocks talk: under EMU_LATE every other cluster gets its turn. */
void kiln__scheduler_talk(emu_thread *thread);

/* Begins an instruction of the current thread: a chance for another to run under EMU_RANDOM, a
 * step of the clock under EMU_TIMED. */
static inline emu_thread *kiln__emu_enter(const char *site) {
  emu_thread *thread = kiln__emu_current.thread;
  thread->site = site;
  if (thread->machine->schedule >= EMU_RANDOM) kiln__scheduler_yield(thread);
  return thread;
}

/* ---- report.c ---- */

/* Ends the launch with this sentence, "block 0 warp 4 lane 31: " in front of it when a thread runs.
 * */
void kiln__emu_fault(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void kiln__emu_deadlock(emu_machine *machine) __attribute__((noreturn));
/* "deadlock: every thread waits", `why`, and who waits for what on these machines. */
void kiln__emu_describe_deadlock(const emu_machine *machines, u32 count, const char *why,
                                 char *message);
/* Who a component belongs to: "warp 4 lane 31", "TMA on k_full#0". */
const char *kiln__emu_component_name(emu_machine *machine, u32 component, char *buffer,
                                     size_t size);

/* ---- shared memory, mbarriers, proxies ---- */

/* A fault unless [at, at + bytes) lies in the block's shared memory and at is a multiple of align.
 * */
void kiln__shared_check(const emu_block *block, u32 at, u32 bytes, u32 align, const char *site);
emu_mbarrier *kiln__mbarrier_find(emu_block *block, u32 at, const char *site);
void kiln__mbarrier_landed(emu_block *block, emu_mbarrier *mbarrier, u32 bytes, int last);

void kiln__proxy_update(emu_thread *thread); /* advances EMU_FENCED as far as it may go */
void kiln__proxy_wrote(emu_thread *thread);
void kiln__proxy_loaded(emu_thread *thread, const u32 *registers);
void kiln__proxy_consumed(emu_thread *thread, const u32 *registers, u32 count);
void kiln__proxy_group(emu_thread *thread, const u32 *registers, int group);
void kiln__proxy_waited(emu_thread *thread, int group);

/* A thread of another block uses the block's shared memory; over when the mark is known. */
void kiln__peer_touch(emu_thread *thread, emu_block *block, emu_mark mark, const char *site);
void kiln__peer_exit(emu_thread *thread);

/* ---- asynchronous engines, called by the scheduler ---- */

int kiln__copy_land_any(emu_machine *machine); /* 1 when something landed */
void kiln__copy_exit(emu_thread *thread);
int kiln__tma_land_demanded(emu_machine *machine);
int kiln__tma_land_any(emu_machine *machine);
/* EMU_TIMED: when the next one lands, INFINITY where nothing is in flight; and lands it. */
double kiln__tma_due(const emu_machine *machine);
void kiln__tma_land_due(emu_machine *machine);
void kiln__tma_exit(emu_thread *thread);
void kiln__tma_finish(emu_machine *machine); /* all blocks have ended */
int kiln__wgmma_land_demanded(emu_machine *machine);
int kiln__wgmma_land_any(emu_machine *machine);
double kiln__wgmma_due(const emu_machine *machine);
void kiln__wgmma_land_due(emu_machine *machine);
void kiln__wgmma_create(emu_block *block);
void kiln__wgmma_exit(emu_thread *thread);

#endif
