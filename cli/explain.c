/* kiln explain: which kernel would run and why, what it takes of the chip, what it moves.
 *
 * Everything is computed from the launch record, the compiler's figures and the sizes; nothing is
 * launched. Byte counts are those of the algorithm: what every byte that must move once costs, what
 * this kernel asks of the L2 cache, and what standard attention would move instead. */
#include "device.h"
#include "out.h"
#include "selection.h"
#include "shape.h"
#include "textbook.h"
#include "verbs.h"

#include <math.h>
#include <string.h>

static const kiln__flag flags[] = {
    {"--json", NULL, "one object a kernel"},
    {0},
};

enum { ELEMENT_BYTES = 2, LSE_BYTES = 4, SMEM_RESERVED = 1024, REGISTER_UNIT = 256, WARP = 32 };
enum { WORKSPACE_UNIT = 256 };

typedef struct session {
  const kiln__args *args;
  kiln_context *ctx;
  int device;
  kiln_attn_args shape;
  kiln__variant *variant; /* at hand */
} session;

/* ---- occupancy ---- */

static json_int_t member(const json_t *object, const char *name) {
  return json_integer_value(json_object_get(object, name));
}

static json_int_t least(json_int_t a, json_int_t b) { return a < b ? a : b; }

/* Blocks of one entry that are resident on an SM together, and what stops the next one. Registers
 * are given to a warp in units of 256, shared memory to a block with 1 KiB of the system's own. */
static json_t *occupancy_json(const json_t *arch, const json_t *entry) {
  json_int_t warps = (member(entry, "threads") + WARP - 1) / WARP;
  json_int_t registers = member(entry, "registers");
  json_int_t shared = member(entry, "shared_bytes") + member(entry, "static_bytes") + SMEM_RESERVED;
  if (!arch || warps < 1) return json_null();
  json_int_t by_threads = member(arch, "warps_per_sm") / warps;
  json_int_t by_shared = member(arch, "smem_per_sm") / shared;
  json_int_t by_registers = by_threads;
  if (registers > 0) {
    json_int_t of_warp = (registers * WARP + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
    by_registers = member(arch, "registers_per_sm") / of_warp / warps;
  }
  json_int_t blocks = least(by_threads, least(by_shared, by_registers));
  const char *limit = blocks == by_shared      ? "shared memory"
                      : blocks == by_registers ? "registers"
                                               : "threads";
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "blocks_per_sm", blocks, "warps_per_sm",
                   blocks * warps, "by_threads", by_threads, "by_registers", by_registers,
                   "by_shared", by_shared, "limit", limit);
}

static json_t *entries_json(const session *s, const json_t *record) {
  const json_t *entries = json_object_get(record, "entries");
  const json_t *arch = kiln__schema_arch(s->args->schema, s->variant->spec.arch);
  json_t *list = json_array();
  for (size_t i = 0; i < json_array_size(entries); i++) {
    const json_t *entry = json_array_get(entries, i);
    json_t *row = json_object();
    static const char *const names[] = {"name",      "threads",     "cluster",
                                        "registers", "spill_bytes", "shared_bytes"};
    for (int n = 0; n < 6; n++) {
      json_t *value = json_object_get(entry, names[n]);
      if (value) json_object_set(row, names[n], value);
    }
    json_t *occupancy = occupancy_json(arch, entry);
    json_object_update(row, occupancy);
    json_decref(occupancy);
    json_array_append_new(list, row);
  }
  return list;
}

/* ---- bytes ---- */

typedef struct traffic {
  double compulsory; /* q, k, v once; o and lse once; of a backward pass all inputs and gradients */
  double streamed;   /* what this tile asks of L2: k and v again for every block of queries; of a
                        backward pass q, do and the fp32 sums of dq again for every block of keys */
  double table;      /* the scores of all heads, 2 bytes each                    */
  double standard;   /* compulsory, and the table four times; of a backward pass seven times */
} traffic;

/* Keys that the rows first .. first+block_m see, summed over all blocks of rows. */
static double count_keys(const kiln_attn_args *shape, const kiln__variant *variant) {
  double keys = 0;
  int64_t block_m = variant->tile.block_m > 0 ? variant->tile.block_m : 1;
  for (int64_t first = 0; first < shape->seqlen_q; first += block_m) {
    int64_t end = first + block_m < shape->seqlen_q ? first + block_m : shape->seqlen_q;
    int64_t seen = variant->spec.mask == KILN_MASK_CAUSAL ? end + shape->seqlen_k - shape->seqlen_q
                                                          : shape->seqlen_k;
    keys += seen < 0 ? 0 : (double)seen;
  }
  return keys;
}

/* Queries that see one of the keys first .. first+block_n, summed over all blocks of keys. */
static double count_queries(const kiln_attn_args *shape, const kiln__variant *variant) {
  double queries = 0;
  int64_t block_n = variant->tile.block_n > 0 ? variant->tile.block_n : 1;
  for (int64_t first = 0; first < shape->seqlen_k; first += block_n) {
    int64_t hidden = variant->spec.mask == KILN_MASK_CAUSAL
                         ? first - (shape->seqlen_k - (int64_t)shape->seqlen_q)
                         : 0;
    queries += (double)(shape->seqlen_q - (hidden < 0 ? 0 : hidden));
  }
  return queries;
}

/* The table: weights read twice, dP written and read, dS written and read twice. */
static void count_backward(const kiln_attn_args *shape, const kiln__variant *variant, double rows_q,
                           double rows_k, traffic *t) {
  const kiln_attn_spec *spec = &variant->spec;
  double row = (double)ELEMENT_BYTES * spec->head_dim;
  double row_v = (double)ELEMENT_BYTES * spec->head_dim_v;
  double keys = rows_k * 2 * (row + row_v);
  double heads = (double)shape->batch * shape->num_heads;
  t->compulsory = rows_q * (2 * row + 2 * row_v + LSE_BYTES) + keys;
  t->streamed = rows_q * (row + 2 * row_v) + keys +
                heads * count_queries(shape, variant) * (row + row_v + LSE_BYTES + 2 * row);
  t->standard = t->compulsory + 7 * t->table;
}

static traffic count_traffic(const kiln_attn_args *shape, const kiln__variant *variant) {
  const kiln_attn_spec *spec = &variant->spec;
  double rows_q = (double)shape->batch * shape->seqlen_q * shape->num_heads;
  double rows_k = (double)shape->batch * shape->seqlen_k * shape->num_heads_k;
  double row_bytes = (double)ELEMENT_BYTES * (spec->head_dim + spec->head_dim_v);
  double heads = (double)shape->batch * shape->num_heads;
  traffic t;
  t.table = heads * (double)kiln__score_table_bytes((uint64_t)shape->seqlen_q,
                                                    (uint64_t)shape->seqlen_k, ELEMENT_BYTES);
  t.compulsory = rows_q * (row_bytes + LSE_BYTES) + rows_k * row_bytes;
  t.streamed = rows_q * (row_bytes + LSE_BYTES) + heads * count_keys(shape, variant) * row_bytes;
  t.standard = t.compulsory + 4 * t.table;
  if (spec->pass == KILN_PASS_BACKWARD) count_backward(shape, variant, rows_q, rows_k, &t);
  return t;
}

static json_t *traffic_json(const session *s) {
  traffic t = count_traffic(&s->shape, s->variant);
  uint64_t head = kiln__score_table_bytes((uint64_t)s->shape.seqlen_q, (uint64_t)s->shape.seqlen_k,
                                          ELEMENT_BYTES);
  return json_pack("{s:f, s:f, s:I, s:f, s:f}", "compulsory_bytes", t.compulsory, "streamed_bytes",
                   t.streamed, "score_bytes_per_head", (json_int_t)head, "score_bytes", t.table,
                   "standard_bytes", t.standard);
}

/* ---- the kernel ---- */

/* The fields of the tile that the flags give; the others are the plan's to choose. */
static kiln_tile asked_tile(const session *s) {
  kiln_tile tile = KILN_TILE_INIT, *given = &s->variant->tile;
  if (kiln__args_has(s->args, "--block-m")) tile.block_m = given->block_m;
  if (kiln__args_has(s->args, "--block-n")) tile.block_n = given->block_n;
  if (kiln__args_has(s->args, "--num-stages")) tile.num_stages = given->num_stages;
  if (kiln__args_has(s->args, "--num-warps")) tile.num_warps = given->num_warps;
  return tile;
}

/* Without a device there is no plan: the tile is the default of the arch, or as given. */
static kiln_status make_plan(const session *s, kiln_plan **plan) {
  kiln_attn_args shape = s->shape;
  const kiln_tile tile = asked_tile(s);
  *plan = NULL;
  if (s->device == KILN_DEVICE_NONE) return KILN_OK;
  kiln_attn_args_pack(&shape, &s->variant->spec);
  kiln_status status = kiln_plan_create(s->ctx, &s->variant->spec, &tile, &shape, plan);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(s->ctx, status);
}

static void add_plan(const session *s, const kiln_plan_info *plan, json_t *object) {
  if (s->device == KILN_DEVICE_NONE) {
    json_object_set_new(object, "why",
                        json_sprintf("there is no device to ask; the tile is as given, or the "
                                     "default of %s",
                                     s->variant->spec.arch));
    return;
  }
  json_object_set_new(object, "why", json_string(plan->why));
  json_t *ladder = json_loads(plan->ladder, 0, NULL);
  if (json_object_size(ladder) > 0) json_object_set(object, "ladder", ladder);
  json_decref(ladder);
  if (plan->pack) json_object_set_new(object, "pack", json_string(plan->pack));
}

/* What the caller has to bring for this shape: docs/record.md has the rule. */
static double workspace_bytes(const session *s, const json_t *record) {
  json_t *sizes = kiln__shape_json(&s->shape);
  const json_t *item, *factor;
  size_t i, d;
  double sum = 0;
  json_array_foreach(json_object_get(record, "workspace"), i, item) {
    double bytes = (double)member(item, "bytes");
    json_array_foreach(json_object_get(item, "dims"), d, factor) {
      const char *name = json_string_value(json_array_get(factor, 0));
      const json_int_t divisor = json_integer_value(json_array_get(factor, 1));
      bytes *= ceil((double)member(sizes, name) / (double)divisor);
    }
    sum += ceil(bytes / WORKSPACE_UNIT) * WORKSPACE_UNIT;
  }
  json_decref(sizes);
  return sum;
}

static kiln_status add_record(const session *s, const char *text, json_t *object) {
  json_t *record = kiln__json_parse(text, "the launch record");
  if (!record) return KILN_INTERNAL;
  json_object_set(object, "family", json_object_get(record, "family"));
  const double bytes = workspace_bytes(s, record);
  json_object_set_new(object, "workspace_bytes",
                      bytes < 0x1p62 ? json_integer((json_int_t)bytes) : json_real(bytes));
  json_object_set_new(object, "entries", entries_json(s, record));
  json_t *smem = json_object_get(record, "smem");
  if (smem) json_object_set(object, "smem", smem);
  json_t *notes = json_object_get(record, "notes");
  if (notes) json_object_set(object, "notes", notes);
  json_decref(record);
  return KILN_OK;
}

static void add_figures(json_t *object, json_int_t registers, json_int_t spill_bytes,
                        json_int_t shared_bytes) {
  json_object_set_new(object, "registers", json_integer(registers));
  json_object_set_new(object, "spill_bytes", json_integer(spill_bytes));
  json_object_set_new(object, "shared_bytes", json_integer(shared_bytes));
}

/* A kernel from a pack is not the generator's to describe: its own record does. */
static kiln_status add_packed(const session *s, const kiln_plan_info *plan, json_t *object) {
  json_t *record = kiln__json_parse(plan->record, "the launch record");
  json_int_t registers = 0, spill_bytes = 0, shared_bytes = 0;
  const json_t *entry;
  size_t i;
  json_array_foreach(json_object_get(record, "entries"), i, entry) {
    const json_int_t shared = member(entry, "shared_bytes") + member(entry, "static_bytes");
    if (member(entry, "registers") > registers) registers = member(entry, "registers");
    if (shared > shared_bytes) shared_bytes = shared;
    spill_bytes += member(entry, "spill_bytes");
  }
  json_decref(record);
  json_object_set_new(object, "source_id", json_string(plan->source_id));
  json_object_set_new(object, "kernel_id", json_string(plan->kernel_id));
  add_figures(object, registers, spill_bytes, shared_bytes);
  return add_record(s, plan->record, object);
}

/* With no compiler at hand the record still tells threads and shared memory. */
static kiln_status add_kernel(const session *s, json_t *object) {
  kiln_source *source = NULL;
  kiln_binary *binary = NULL;
  kiln_binary_info info = {.size = sizeof info};
  kiln_status status =
      kiln_source_generate(s->ctx, &s->variant->spec, &s->variant->tile, 0, &source);
  if (status != KILN_OK) return kiln__fail_context(s->ctx, status);
  json_object_set_new(object, "source_id", json_string(kiln_source_id(source)));
  status = kiln_binary_compile(s->ctx, source, &binary);
  if (status == KILN_OK) {
    kiln_binary_get_info(binary, &info);
    json_object_set_new(object, "kernel_id", json_string(info.kernel_id));
    add_figures(object, info.registers, info.spill_bytes, info.shared_bytes);
    status = add_record(s, info.record, object);
  } else if (status == KILN_NO_COMPILER) {
    kiln__note("registers are not known: %s", kiln_last_error(s->ctx));
    status = add_record(s, kiln_source_record(source), object);
  } else {
    kiln__fail_context(s->ctx, status);
  }
  kiln_binary_destroy(binary);
  kiln_source_destroy(source);
  return status;
}

/* ---- time ---- */

/* By the cost model, on the device at hand or a usual one of the arch. */
static kiln_status add_prediction(const session *s, json_t *object) {
  kiln_prediction p = {.size = sizeof p};
  kiln_status status =
      kiln_tile_predict(s->ctx, &s->variant->spec, &s->variant->tile, &s->shape, 0, &p);
  if (status != KILN_OK) return kiln__fail_context(s->ctx, status);
  const struct {
    const char *name;
    double value;
  } parts[] = {{"time_us", p.time_us},     {"tensor_us", p.tensor_us}, {"softmax_us", p.softmax_us},
               {"shared_us", p.shared_us}, {"l2_us", p.l2_us},         {"memory_us", p.memory_us},
               {"tile_us", p.tile_us},     {"masked_us", p.masked_us}, {"tail_us", p.tail_us},
               {"launch_us", p.launch_us}};
  json_t *list = json_object();
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    json_object_set_new(list, parts[i].name, kiln__json_number(round(parts[i].value * 10) / 10));
  json_object_set_new(object, "predicted", list);
  return KILN_OK;
}

/* ---- for people ---- */

static void print_size(const char *name, double bytes, const char *sentence) {
  printf("  %-18s%12.4g MB  %s\n", name, bytes / 1e6, sentence);
}

static void print_traffic(const session *s) {
  traffic t = count_traffic(&s->shape, s->variant);
  bool backward = s->variant->spec.pass == KILN_PASS_BACKWARD;
  printf("bytes (1 MB = 10^6 bytes):\n");
  print_size("compulsory", t.compulsory,
             backward ? "q, k, v, o, do and lse read once, dq, dk and dv written once"
                      : "q, k, v read once, o and lse written once");
  print_size("streamed", t.streamed,
             backward ? "with this block_n, q, do and the sums of dq again for every block of "
                        "keys, mostly from L2"
                      : "with this block_m, k and v again for every block of queries, "
                        "mostly from L2");
  print_size("scores", t.table, "the table of all heads, which this kernel never writes");
  if (s->variant->spec.algorithm == KILN_ALGORITHM_STANDARD)
    printf("  this is standard attention: it does write them\n");
  print_size("standard attention", t.standard,
             backward ? "the same, and tables of weights, dP and dS written and read"
                      : "the same, and the table written and read twice");
}

/* The figures of the tutorial, computed as they are printed. */
static const double lesson[2][4] = {{1, 0.5, 2, 1.5}, {3, 0.2, 1, 2.5}};

static void print_forward_lesson(void) {
  kiln__running_softmax state = kiln__softmax_start();
  printf(
      "why the scores need no table:\n"
      "  The softmax of a row runs along: m is the largest score so far, l the sum of exp(s - m).\n"
      "  A larger m' rescales l, and the output, by exp(m - m').\n");
  for (int r = 0; r < 2; r++) {
    kiln__softmax_add(&state, lesson[r], 4);
    printf("  scores (%g, %g, %g, %g): m = %g, l = %.3f\n", lesson[r][0], lesson[r][1],
           lesson[r][2], lesson[r][3], state.maximum, state.sum);
  }
  printf("  One head's table at 2 bytes: N = 4096 takes %.1f MB, N = 8192 takes %.0f MB.\n"
         "  Traffic: N d + N^2 for the standard way, N^2 d^2 / M with M bytes on the chip.\n",
         (double)kiln__score_table_bytes(4096, 4096, ELEMENT_BYTES) / 1e6,
         (double)kiln__score_table_bytes(8192, 8192, ELEMENT_BYTES) / 1e6);
}

static void print_backward_lesson(void) {
  kiln__running_softmax state = kiln__softmax_start();
  for (int r = 0; r < 2; r++) kiln__softmax_add(&state, lesson[r], 4);
  const double lse = state.maximum + log(state.sum);
  printf(
      "why the gradients need no table:\n"
      "  Two numbers a row are enough: lse = ln of the sum of exp(s), which the forward pass "
      "left,\n"
      "  and delta = do . o. With them each block of weights comes again, P = exp(s - lse), and\n"
      "  dS = P (dP - delta), whatever the other blocks hold. Eight scores in two blocks: lse = "
      "%.3f\n",
      lse);
  for (int r = 0; r < 2; r++)
    printf("  scores (%g, %g, %g, %g): P = %.3f, %.3f, %.3f, %.3f\n", lesson[r][0], lesson[r][1],
           lesson[r][2], lesson[r][3], exp(lesson[r][0] - lse), exp(lesson[r][1] - lse),
           exp(lesson[r][2] - lse), exp(lesson[r][3] - lse));
}

/* Of the passes that were explained. */
static void print_lessons(const kiln__selection *selection) {
  bool seen[2] = {false, false};
  for (int64_t i = 0; i < selection->count; i++)
    seen[selection->variants[i].spec.pass == KILN_PASS_BACKWARD] = true;
  if (seen[0]) print_forward_lesson();
  if (seen[1]) print_backward_lesson();
}

static void print_text(const session *s, const json_t *object) {
  printf("%s\n", kiln__variant_describe(&s->variant->spec).text);
  kiln__print_text(object);
  print_traffic(s);
}

/* plan: all zero without a device. */
static kiln_status describe(const session *s, const kiln_plan_info *plan) {
  json_t *object = json_object();
  bool json = kiln__args_has(s->args, "--json");
  kiln__variant_json(object, &s->variant->spec, &s->variant->tile);
  json_object_set_new(object, "shape", kiln__shape_json(&s->shape));
  add_plan(s, plan, object);
  kiln_status status = plan->pack ? add_packed(s, plan, object) : add_kernel(s, object);
  if (status == KILN_OK) status = add_prediction(s, object);
  if (status == KILN_OK && json) {
    json_object_set_new(object, "bytes", traffic_json(s));
    return kiln__print_json(object);
  }
  if (status == KILN_OK) print_text(s, object);
  json_decref(object);
  return status;
}

/* The plan may have another tile than the default of the arch: that of a pack. */
static kiln_status explain(session *s) {
  kiln_plan *plan = NULL;
  kiln_plan_info info = {.size = sizeof info};
  kiln_status status = make_plan(s, &plan);
  if (status != KILN_OK) return status;
  if (plan) {
    kiln_plan_get_info(plan, &info);
    s->variant->tile = info.tile;
  }
  status = describe(s, &info);
  kiln_plan_destroy(plan);
  return status;
}

static kiln_status run(const kiln__args *args) {
  session s = {.args = args};
  kiln__selection selection;
  kiln_status status = kiln__shape_read(args, &s.shape);
  if (status == KILN_OK) status = kiln__device_open(args, KILN__DEVICE_TO_ASK, &s.device, &s.ctx);
  if (status != KILN_OK) return status;
  status = kiln__selection_create(s.ctx, s.device, args, KILN__OPEN_IS_DEFAULT, &selection);
  for (int64_t i = 0; status == KILN_OK && i < selection.count; i++) {
    s.variant = &selection.variants[i];
    status = explain(&s);
  }
  if (status == KILN_OK && !kiln__args_has(args, "--json")) print_lessons(&selection);
  kiln__selection_destroy(&selection);
  kiln_context_destroy(s.ctx);
  return status;
}

const kiln__verb kiln__verb_explain = {
    .name = "explain",
    .usage =
        "SELECTION [--batch N] [--seqlen-q N] [--seqlen-k N] [--num-heads N] [--num-heads-k N]",
    .sentence = "Says which kernel would run, why, and what it moves.",
    .flags = flags,
    .groups = KILN__TAKES_SELECTION | KILN__TAKES_SHAPE | KILN__TAKES_TARGET,
    .run = run,
};
