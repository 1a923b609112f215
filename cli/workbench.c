/* Candidates of a tuning; workbench.h states what is kept. */
#include "workbench.h"

#include "out.h"
#include "pool.h"
#include "proof.h"
#include "stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_WARM_US 20000.0 /* the GPU comes to its clocks */
#define WARM_US       2000.0
#define SAMPLE_US     200.0
#define MOST_ROUNDS   1000000.0 /* in a sample */

/* One kernel that was compiled, or that cannot be. */
typedef struct kernel {
  struct kernel *next;
  kiln_attn_spec spec;
  kiln_tile tile;
  bool is_made;
  kiln_binary *binary;
  kiln_status status; /* of compiling */
  char *error;
  bool is_proved;
  kiln__verdict verdict;
} kernel;

typedef struct spec_proof {
  struct spec_proof *next;
  kiln_attn_spec spec;
  kiln__proof *proof;
} spec_proof;

typedef struct ready {
  kiln_plan *plan; /* NULL = free */
  int rounds;      /* over the sets in a sample */
} ready;

struct kiln__workbench {
  kiln_context *ctx;
  kernel *kernels;
  spec_proof *proofs;
  kiln_attn_spec spec;
  kiln_attn_args shape;
  kiln__stage stage; /* no memory before a problem is open */
  bool is_warm;      /* something ran on this problem */
  kiln__pool *pool;
  kernel *batch[KILN__WORKBENCH_BATCH]; /* its jobs */
  int num_batch;
  ready ready[KILN__WORKBENCH_HANDLES];
};

static bool same_spec(const kiln_attn_spec *a, const kiln_attn_spec *b) {
  return strcmp(a->arch, b->arch) == 0 && a->pass == b->pass && a->algorithm == b->algorithm &&
         a->dtype == b->dtype && a->head_dim == b->head_dim && a->head_dim_v == b->head_dim_v &&
         a->mask == b->mask && a->deterministic == b->deterministic;
}

static bool same_tile(const kiln_tile *a, const kiln_tile *b) {
  return a->block_m == b->block_m && a->block_n == b->block_n && a->num_stages == b->num_stages &&
         a->num_warps == b->num_warps;
}

/* ---- compiling ---- */

static void make(kiln_context *ctx, kernel *k) {
  kiln_source *source = NULL;
  k->status = kiln_source_generate(ctx, &k->spec, &k->tile, 0, &source);
  if (k->status == KILN_OK) k->status = kiln_binary_compile(ctx, source, &k->binary);
  if (k->status != KILN_OK) k->error = strdup(kiln_last_error(ctx));
  kiln_source_destroy(source);
  k->is_made = true;
}

static void make_job(void *user, int64_t index) {
  const kiln__workbench *bench = user;
  make(bench->ctx, bench->batch[index]);
}

/* NULL without memory. */
static kernel *find_kernel(kiln__workbench *bench, const kiln_tile *tile) {
  for (kernel *k = bench->kernels; k; k = k->next)
    if (same_tile(&k->tile, tile) && same_spec(&k->spec, &bench->spec)) return k;
  kernel *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->spec = bench->spec;
  made->tile = *tile;
  made->next = bench->kernels;
  return bench->kernels = made;
}

static void end_batch(kiln__workbench *bench) {
  kiln__pool_destroy(bench->pool, NULL);
  bench->pool = NULL;
  bench->num_batch = 0;
}

static kiln_status refuse_memory(void) {
  return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
}

kiln_status kiln__workbench_compile(kiln__workbench *bench, const kiln_tile *tiles, int count) {
  end_batch(bench);
  for (int i = 0; i < count && i < KILN__WORKBENCH_BATCH; i++) {
    kernel *k = find_kernel(bench, &tiles[i]);
    if (!k) return refuse_memory();
    if (!k->is_made) bench->batch[bench->num_batch++] = k;
  }
  if (bench->num_batch == 0) return KILN_OK;
  bench->pool = kiln__pool_create(bench->num_batch, make_job, bench);
  return bench->pool ? KILN_OK : refuse_memory();
}

/* Waits for the pool where it is one of its jobs. */
static void finish_kernel(kiln__workbench *bench, kernel *k) {
  for (int i = 0; i < bench->num_batch; i++) {
    if (bench->batch[i] != k) continue;
    kiln__pool_wait(bench->pool, i);
    return;
  }
  if (!k->is_made) make(bench->ctx, k);
}

/* Nothing is timed while something is compiled. */
static void finish_batch(kiln__workbench *bench) {
  for (int i = 0; i < bench->num_batch; i++) kiln__pool_wait(bench->pool, i);
}

/* ---- outcomes ---- */

static void report(kiln__finding *finding, kiln__finding_outcome outcome, const char *reason) {
  finding->outcome = outcome;
  snprintf(finding->reason, sizeof finding->reason, "%s", reason ? reason : "");
}

/* After a call of the library that was not OK: the device's own failure is an outcome. */
static kiln_status report_failure(const kiln__workbench *bench, kiln_status status,
                                  kiln__finding *finding) {
  if (status != KILN_DRIVER_FAILED) return kiln__fail_context(bench->ctx, status);
  report(finding, KILN__FOUND_FAULT, kiln_last_error(bench->ctx));
  return KILN_OK;
}

/* What the compiler or the generator says about the text is the tile's fault, all else is not. */
static kiln_status judge_compile(const kernel *k, kiln__finding *finding) {
  const char *sentence = k->error ? k->error : kiln_status_text(k->status);
  if (k->status == KILN_OK) return KILN_OK;
  if (k->status != KILN_COMPILE_FAILED && k->status != KILN_TEMPLATE_FAILED &&
      k->status != KILN_UNSUPPORTED && k->status != KILN_INVALID_ARGUMENT)
    return kiln__fail(k->status, "%s", sentence);
  report(finding, KILN__FOUND_COMPILE_FAILED, sentence);
  return KILN_OK;
}

/* ---- proving ---- */

static kiln_status find_proof(kiln__workbench *bench, const kiln__proof **proof) {
  for (spec_proof *p = bench->proofs; p; p = p->next) {
    if (!same_spec(&p->spec, &bench->spec)) continue;
    *proof = p->proof;
    return KILN_OK;
  }
  spec_proof *made = calloc(1, sizeof *made);
  if (!made) return refuse_memory();
  kiln_status status = kiln__proof_create(&bench->spec, true, &made->proof);
  if (status != KILN_OK) {
    free(made);
    return status;
  }
  made->spec = bench->spec;
  made->next = bench->proofs;
  bench->proofs = made;
  *proof = made->proof;
  return KILN_OK;
}

static kiln_status prove(kiln__workbench *bench, kernel *k, kiln_plan *plan,
                         kiln__finding *finding) {
  const kiln__proof *proof = NULL;
  if (!k->is_proved) {
    kiln_status status = find_proof(bench, &proof);
    if (status == KILN_OK) status = kiln__proof_try(proof, bench->ctx, plan, &k->verdict);
    if (status != KILN_OK) return status;
    k->is_proved = true;
  }
  if (!k->verdict.right)
    report(finding, k->verdict.faulted ? KILN__FOUND_FAULT : KILN__FOUND_WRONG_RESULT,
           k->verdict.why);
  return KILN_OK;
}

/* ---- timing ---- */

static int rounds_for(const kiln__workbench *bench, double wanted_us, double launch_us) {
  const double rounds = ceil(wanted_us / (launch_us * bench->stage.num_sets));
  return rounds < 1 ? 1 : rounds < MOST_ROUNDS ? (int)rounds : (int)MOST_ROUNDS;
}

static kiln_status run_rounds(const kiln__workbench *bench, kiln_plan *plan, int rounds,
                              double *launch_us) {
  const kiln__stage *stage = &bench->stage;
  return kiln_plan_sample(plan, stage->sets, stage->num_sets, rounds, launch_us);
}

/* A kernel that needs a larger workspace than the stage has gets another stage. */
static kiln_status fit_stage(kiln__workbench *bench, kiln_plan *plan) {
  size_t bytes = 0;
  kiln_attn_args shape = bench->shape;
  kiln_attn_args_pack(&shape, &bench->spec);
  kiln_status status = kiln_plan_workspace(plan, &shape, &bytes);
  if (status != KILN_OK) return kiln__fail_context(bench->ctx, status);
  if (bytes <= bench->stage.args[0].workspace_bytes) return KILN_OK;
  kiln__stage_destroy(&bench->stage);
  return kiln__stage_create(bench->ctx, &bench->spec, &bench->shape, bytes, 1, &bench->stage);
}

/* The first round is slower than any later one and only says how many warm up; their mean says how
 * many a sample takes. */
static kiln_status warm_up(kiln__workbench *bench, ready *r, kiln__finding *finding) {
  double launch_us = 0;
  const double wanted = bench->is_warm ? WARM_US : FIRST_WARM_US;
  kiln_status status = run_rounds(bench, r->plan, 1, &launch_us);
  if (status == KILN_OK)
    status = run_rounds(bench, r->plan, rounds_for(bench, wanted, launch_us), &launch_us);
  if (status != KILN_OK) return report_failure(bench, status, finding);
  r->rounds = rounds_for(bench, SAMPLE_US, launch_us);
  bench->is_warm = true;
  return KILN_OK;
}

/* ---- one candidate ---- */

static kiln_status load(kiln__workbench *bench, kernel *k, ready *r, kiln__finding *finding) {
  kiln_binary_info info = {.size = sizeof info};
  kiln_binary_get_info(k->binary, &info);
  finding->registers = info.registers;
  finding->spill_bytes = info.spill_bytes;
  finding->shared_bytes = info.shared_bytes;
  kiln_status status = kiln_plan_load(bench->ctx, k->binary, &r->plan);
  if (status != KILN_OK) return report_failure(bench, status, finding);
  status = prove(bench, k, r->plan, finding);
  if (status == KILN_OK && finding->outcome == KILN__FOUND_TIMED)
    status = fit_stage(bench, r->plan);
  if (status == KILN_OK && finding->outcome == KILN__FOUND_TIMED)
    status = warm_up(bench, r, finding);
  return status;
}

kiln_status kiln__workbench_prepare(kiln__workbench *bench, const kiln_tile *tile,
                                    kiln__finding *finding) {
  int free_slot = 0;
  *finding = (kiln__finding){.outcome = KILN__FOUND_TIMED};
  while (free_slot < KILN__WORKBENCH_HANDLES && bench->ready[free_slot].plan) free_slot++;
  if (free_slot == KILN__WORKBENCH_HANDLES)
    return kiln__fail(KILN_INVALID_ARGUMENT, "more than %d kernels are ready; drop one",
                      KILN__WORKBENCH_HANDLES);
  kernel *k = find_kernel(bench, tile);
  if (!k) return refuse_memory();
  finish_kernel(bench, k);
  kiln_status status = judge_compile(k, finding);
  if (status != KILN_OK || !k->binary) return status;
  finish_batch(bench);
  status = load(bench, k, &bench->ready[free_slot], finding);
  finding->handle = free_slot;
  if (status != KILN_OK || finding->outcome != KILN__FOUND_TIMED)
    kiln__workbench_drop(bench, free_slot);
  return status;
}

kiln_status kiln__workbench_sample(kiln__workbench *bench, int handle, kiln__finding *finding,
                                   double *time_us) {
  *finding = (kiln__finding){.outcome = KILN__FOUND_TIMED, .handle = handle};
  if (handle < 0 || handle >= KILN__WORKBENCH_HANDLES || !bench->ready[handle].plan)
    return kiln__fail(KILN_INVALID_ARGUMENT, "handle %d is of nothing that is ready", handle);
  const ready *r = &bench->ready[handle];
  kiln_status status = run_rounds(bench, r->plan, r->rounds, time_us);
  return status == KILN_OK ? KILN_OK : report_failure(bench, status, finding);
}

void kiln__workbench_drop(kiln__workbench *bench, int handle) {
  if (handle < 0 || handle >= KILN__WORKBENCH_HANDLES) return;
  kiln_plan_destroy(bench->ready[handle].plan);
  bench->ready[handle] = (ready){0};
}

/* ---- problems ---- */

kiln_status kiln__workbench_open(kiln__workbench *bench, const kiln_attn_spec *spec,
                                 const kiln_attn_args *shape) {
  end_batch(bench);
  for (int i = 0; i < KILN__WORKBENCH_HANDLES; i++) kiln__workbench_drop(bench, i);
  kiln__stage_destroy(&bench->stage);
  bench->spec = *spec;
  bench->shape = *shape;
  bench->is_warm = false;
  return kiln__stage_create(bench->ctx, spec, shape, 0, 1, &bench->stage);
}

kiln_status kiln__workbench_create(kiln_context *ctx, kiln__workbench **bench) {
  *bench = calloc(1, sizeof **bench);
  if (!*bench) return refuse_memory();
  (*bench)->ctx = ctx;
  return KILN_OK;
}

void kiln__workbench_destroy(kiln__workbench *bench) {
  if (!bench) return;
  end_batch(bench);
  for (int i = 0; i < KILN__WORKBENCH_HANDLES; i++) kiln__workbench_drop(bench, i);
  kiln__stage_destroy(&bench->stage);
  while (bench->kernels) {
    kernel *k = bench->kernels;
    bench->kernels = k->next;
    kiln_binary_destroy(k->binary);
    free(k->error);
    free(k);
  }
  while (bench->proofs) {
    spec_proof *p = bench->proofs;
    bench->proofs = p->next;
    kiln__proof_destroy(p->proof);
    free(p);
  }
  free(bench);
}
