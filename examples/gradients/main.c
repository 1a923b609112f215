/* A few steps of training: q, k and v are moved against their gradients until attention gives the o
 * that is wanted. bf16, head_dim 64, causal, 4 query heads on 2 key heads.
 * Usage: gradients DEVICE, a number of CUDA's or emu. Prints which kernels run, and the loss before
 * every step, which falls. */
#include <kiln/kiln.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1, SEQLEN = 100, HEADS = 4, HEADS_K = 2, HEAD_DIM = 64, STEPS = 5 };
enum { COUNT = BATCH * SEQLEN * HEADS * HEAD_DIM }; /* numbers of q and o; k and v have fewer */

static const float RATE = 0.1f;

/* To the nearest bf16, of two the even one. */
static uint16_t bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_bf16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void need(kiln_context *ctx, kiln_status status) {
  if (status == KILN_OK) return;
  fprintf(stderr, "gradients: %s\n", ctx ? kiln_last_error(ctx) : kiln_status_text(status));
  exit((int)status);
}

static void *room(kiln_context *ctx, size_t bytes) {
  void *address = NULL;
  need(ctx, kiln_memory_alloc(ctx, bytes, &address));
  return address;
}

/* Between floats here and bf16 on the device. */
static void send(kiln_context *ctx, void *to, const float *from, size_t count) {
  uint16_t numbers[COUNT];
  for (size_t i = 0; i < count; i++) numbers[i] = bf16(from[i]);
  need(ctx, kiln_memory_upload(ctx, to, numbers, count * sizeof *numbers));
}
static void receive(kiln_context *ctx, float *to, const void *from, size_t count) {
  uint16_t numbers[COUNT];
  need(ctx, kiln_memory_download(ctx, numbers, from, count * sizeof *numbers));
  for (size_t i = 0; i < count; i++) to[i] = from_bf16(numbers[i]);
}

/* What is trained: kept in fp32, because steps are smaller than bf16 can add. */
typedef struct parameter {
  size_t count;
  float values[COUNT];
  void *device, *gradient;
} parameter;

static void prepare(kiln_context *ctx, parameter *p, int heads, size_t factor) {
  p->count = (size_t)BATCH * SEQLEN * (size_t)heads * HEAD_DIM;
  for (size_t i = 0; i < p->count; i++) p->values[i] = (float)(i * factor % 201) / 100.0f - 1.0f;
  p->device = room(ctx, p->count * sizeof(uint16_t));
  p->gradient = room(ctx, p->count * sizeof(uint16_t));
  send(ctx, p->device, p->values, p->count);
}

static void move(kiln_context *ctx, parameter *p) {
  float gradient[COUNT];
  receive(ctx, gradient, p->gradient, p->count);
  for (size_t i = 0; i < p->count; i++) p->values[i] -= RATE * gradient[i];
  send(ctx, p->device, p->values, p->count);
}

/* loss = |o - wanted|^2 / 2, whose gradient in o is o - wanted. */
static double compare(kiln_context *ctx, const void *o, void *dout) {
  float difference[COUNT];
  double loss = 0;
  receive(ctx, difference, o, COUNT);
  for (size_t i = 0; i < COUNT; i++) {
    const float wanted = (float)(i / HEAD_DIM % 5) / 4.0f - 0.5f;
    difference[i] -= wanted;
    loss += 0.5 * (double)difference[i] * (double)difference[i];
  }
  send(ctx, dout, difference, COUNT);
  return loss;
}

/* A kernel that serves sizes like those of args; `deterministic` is of the backward pass alone. */
static kiln_plan *plan_of(kiln_context *ctx, kiln_pass pass, int deterministic,
                          kiln_attn_args *args) {
  kiln_plan *plan = NULL;
  kiln_plan_info info = {.size = sizeof info};
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  spec.pass = pass;
  spec.dtype = KILN_DTYPE_BF16;
  spec.head_dim = spec.head_dim_v = HEAD_DIM;
  spec.mask = KILN_MASK_CAUSAL;
  spec.deterministic = deterministic;
  kiln_attn_args_pack(args, &spec); /* strides of packed tensors, gradients too */
  need(ctx, kiln_plan_create(ctx, &spec, NULL, args, &plan));
  kiln_plan_get_info(plan, &info);
  printf("%s: kernel %.12s: %s\n", pass == KILN_PASS_FORWARD ? "forward" : "backward",
         info.kernel_id, info.why);
  return plan;
}

int main(int count, char **words) {
  kiln_context *ctx = NULL;
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  parameter q, k, v;
  if (count != 2) {
    fprintf(stderr, "usage: gradients DEVICE\n");
    return 1;
  }
  const int device = strcmp(words[1], "emu") == 0 ? KILN_DEVICE_EMU : atoi(words[1]);
  need(NULL, kiln_context_create(device, NULL, &ctx));

  /* Once: one set of arguments serves both passes. */
  prepare(ctx, &q, HEADS, 37);
  prepare(ctx, &k, HEADS_K, 53);
  prepare(ctx, &v, HEADS_K, 71);
  args.q = q.device, args.dq = q.gradient;
  args.k = k.device, args.dk = k.gradient;
  args.v = v.device, args.dv = v.gradient;
  void *dout = room(ctx, COUNT * sizeof(uint16_t));
  args.dout = dout;
  args.o = room(ctx, COUNT * sizeof(uint16_t));
  args.lse = room(ctx, (size_t)BATCH * HEADS * SEQLEN * sizeof(float)); /* backward reads it */
  args.batch = BATCH;
  args.seqlen_q = args.seqlen_k = SEQLEN;
  args.num_heads = HEADS, args.num_heads_k = HEADS_K;
  kiln_plan *forward = plan_of(ctx, KILN_PASS_FORWARD, 0, &args);
  kiln_plan *backward = plan_of(ctx, KILN_PASS_BACKWARD, 1, &args);
  need(ctx, kiln_plan_workspace(backward, &args, &args.workspace_bytes));
  args.workspace = room(ctx, args.workspace_bytes); /* once for all layers: nothing is kept in it */

  for (int step = 0; step < STEPS; step++) {
    need(ctx, kiln_plan_run(forward, &args, NULL));
    need(ctx, kiln_context_synchronize(ctx));
    printf("step %d: loss %.4f\n", step, compare(ctx, args.o, dout));
    need(ctx, kiln_plan_run(backward, &args, NULL));
    need(ctx, kiln_context_synchronize(ctx));
    move(ctx, &q);
    move(ctx, &k);
    move(ctx, &v);
  }

  void *all[] = {q.device,   k.device,   v.device,   args.o, args.lse,
                 q.gradient, k.gradient, v.gradient, dout,   args.workspace};
  for (int i = 0; i < 10; i++) need(ctx, kiln_memory_free(ctx, all[i]));
  kiln_plan_destroy(backward);
  kiln_plan_destroy(forward);
  kiln_context_destroy(ctx);
  return 0;
}
