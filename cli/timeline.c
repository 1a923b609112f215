/* Lanes and bars; timeline.h states what holds of them. */
#include "timeline.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECTION = 1000, LOADING = 0, LOADS = 1, TENSOR = 2, COMPUTING = 10, STORES = 90 };
enum { WARPS = 32, WARPGROUPS = 8, STREAM_MAX = 4096 };

/* One load: the TMA boxes of one phase of its barrier, or a group of cp.async. */
typedef struct load {
  char tensor; /* 'q', 'k', 'v' */
  int slot, phase;
  double begin, end, released;
  double bytes;
  int row, head, batch;
  const char *site;
} load;

typedef struct builder {
  const kiln__page_facts *facts;
  const json_t *events;
  kiln__timeline *t;
  load *loads; /* by begin */
  int num_loads;
  int blocks[2][STREAM_MAX]; /* key blocks in the order of their loads: of k, of v */
  int num_blocks[2];
  bool multiplies[WARPS]; /* by mma.sync */
  bool computes[WARPS];   /* by wgmma, of its warpgroup */
  bool shown[WARPS];
  double product_end[WARPGROUPS]; /* of the one drawn last */
  bool failed;                    /* memory ran out */
} builder;

/* ---- events ---- */

static double number(const json_t *event, const char *member) {
  return json_number_value(json_object_get(event, member));
}

static int whole(const json_t *event, const char *member) { return (int)number(event, member); }

static const char *word(const json_t *event, const char *member) {
  const char *text = json_string_value(json_object_get(event, member));
  return text ? text : "";
}

static bool is_kind(const json_t *event, const char *kind) {
  return strcmp(word(event, "kind"), kind) == 0;
}

/* "templates/forward/hopper.tmpl.cu:84: sync_threads()" */
static const char *place(const json_t *event) {
  const char *site = word(event, "site");
  return strncmp(site, "/kiln/", 6) == 0 ? site + 6 : site;
}

/* ---- lanes and bars ---- */

static void *grow(builder *b, void *list, int count, int *room, size_t size) {
  if (count < *room) return list;
  int wanted = *room ? 2 * *room : 256;
  void *grown = realloc(list, (size_t)wanted * size);
  if (!grown) {
    b->failed = true;
    return list;
  }
  *room = wanted;
  return grown;
}

__attribute__((format(printf, 4, 5))) static int lane(builder *b, int order, const char *section,
                                                      const char *format, ...) {
  kiln__timeline *t = b->t;
  for (int i = 0; i < t->num_lanes; i++)
    if (t->lanes[i].order == order) return i;
  t->lanes = grow(b, t->lanes, t->num_lanes, &t->room_lanes, sizeof *t->lanes);
  if (b->failed) return 0;
  kiln__lane *added = &t->lanes[t->num_lanes];
  va_list arguments;
  va_start(arguments, format);
  added->order = order;
  snprintf(added->section, sizeof added->section, "%s", section);
  vsnprintf(added->name, sizeof added->name, format, arguments);
  va_end(arguments);
  return t->num_lanes++;
}

__attribute__((format(printf, 7, 8))) static void bar(builder *b, int in, kiln__bar_kind kind,
                                                      double begin, double end, const char *label,
                                                      const char *format, ...) {
  kiln__timeline *t = b->t;
  if (b->failed || end <= begin) return;
  t->bars = grow(b, t->bars, t->num_bars, &t->room_bars, sizeof *t->bars);
  if (b->failed) return;
  kiln__bar *added = &t->bars[t->num_bars++];
  va_list arguments;
  va_start(arguments, format);
  *added = (kiln__bar){.lane = in, .kind = kind, .begin = begin, .end = end};
  snprintf(added->label, sizeof added->label, "%s", label);
  vsnprintf(added->title, sizeof added->title, format, arguments);
  va_end(arguments);
}

/* The lane of a warp: with its warpgroup where that computes together, else among the warps that
 * compute, else among those that load. */
static int warp_lane(builder *b, int warp) {
  char section[32];
  if (b->multiplies[warp]) return lane(b, COMPUTING * SECTION + warp, "warps", "warp %d", warp);
  if (!b->computes[warp]) return lane(b, LOADING * SECTION + warp, "producer", "warp %d", warp);
  snprintf(section, sizeof section, "warpgroup %d", warp / 4);
  return lane(b, (COMPUTING + warp / 4) * SECTION + 1 + warp, section, "warp %d", warp);
}

/* ---- loads ---- */

static load *find_load(builder *b, char tensor, int slot, int phase) {
  for (int i = 0; i < b->num_loads; i++)
    if (b->loads[i].tensor == tensor && b->loads[i].slot == slot && b->loads[i].phase == phase)
      return &b->loads[i];
  return NULL;
}

static void add_box(builder *b, const json_t *event) {
  char tensor = word(event, "name")[0];
  load *l = find_load(b, tensor, whole(event, "index"), whole(event, "phase"));
  if (!l) {
    l = &b->loads[b->num_loads++];
    *l = (load){.tensor = tensor,
                .slot = whole(event, "index"),
                .phase = whole(event, "phase"),
                .begin = number(event, "begin"),
                .row = whole(event, "row"),
                .head = whole(event, "head"),
                .batch = whole(event, "batch"),
                .site = place(event)};
  }
  l->bytes += number(event, "bytes");
  l->end = fmax(l->end, number(event, "end"));
}

/* Which tensor an address lies in: each has an allocation of its own. */
static void add_copy(builder *b, const json_t *event) {
  const kiln_attn_args *args = b->facts->args;
  const struct {
    char tensor;
    const void *base;
    kiln_stride stride;
  } tensors[] = {{'q', args->q, args->q_stride},
                 {'k', args->k, args->k_stride},
                 {'v', args->v, args->v_stride}};
  uintptr_t address = (uintptr_t)json_integer_value(json_object_get(event, "address"));
  int best = 0;
  for (int i = 1; i < 3; i++)
    if ((uintptr_t)tensors[i].base <= address &&
        ((uintptr_t)tensors[i].base > (uintptr_t)tensors[best].base ||
         (uintptr_t)tensors[best].base > address))
      best = i;
  int64_t element = (int64_t)(address - (uintptr_t)tensors[best].base) / 2;
  const kiln_stride stride = tensors[best].stride;
  b->loads[b->num_loads++] = (load){.tensor = tensors[best].tensor,
                                    .slot = whole(event, "to"),
                                    .phase = whole(event, "group"),
                                    .begin = number(event, "begin"),
                                    .end = number(event, "end"),
                                    .released = number(event, "waited"),
                                    .bytes = number(event, "bytes"),
                                    .row = (int)(element % stride.batch / stride.row),
                                    .head = (int)(element % stride.row / stride.head),
                                    .batch = (int)(element / stride.batch),
                                    .site = place(event)};
}

/* A phase of "k_empty" lets go what came by the same phase of "k_full". */
static void release_load(builder *b, const json_t *event) {
  const char *name = word(event, "name");
  if (!strstr(name, "_empty")) return;
  load *l = find_load(b, name[0], whole(event, "index"), whole(event, "phase"));
  if (l) l->released = number(event, "end");
}

static int compare_loads(const void *x, const void *y) {
  const load *a = x, *b = y;
  return (a->begin > b->begin) - (a->begin < b->begin);
}

static int order_of(char tensor) { return tensor == 'q' ? 0 : tensor == 'k' ? 1 : 2; }

static int compare_slots(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

/* Shared addresses become numbers from 0, for each tensor. */
static void number_slots(builder *b) {
  for (const char *tensor = "qkv"; *tensor; tensor++) {
    int slots[64], count = 0;
    for (int i = 0; i < b->num_loads; i++) {
      int n = 0;
      while (n < count && slots[n] != b->loads[i].slot) n++;
      if (b->loads[i].tensor == *tensor && n == count && count < 64)
        slots[count++] = b->loads[i].slot;
    }
    qsort(slots, (size_t)count, sizeof *slots, compare_slots);
    for (int i = 0; i < b->num_loads; i++)
      for (int n = 0; b->loads[i].tensor == *tensor && n < count; n++) {
        if (slots[n] != b->loads[i].slot) continue;
        b->loads[i].slot = n;
        break;
      }
  }
}

static void read_loads(builder *b) {
  size_t i;
  const json_t *event;
  json_array_foreach((json_t *)b->events, i, event) {
    if (is_kind(event, "load")) add_box(b, event);
    if (is_kind(event, "copy")) add_copy(b, event);
  }
  json_array_foreach((json_t *)b->events, i, event) if (is_kind(event, "phase"))
      release_load(b, event);
  number_slots(b);
  if (b->num_loads) qsort(b->loads, (size_t)b->num_loads, sizeof *b->loads, compare_loads);
}

/* "K 3": the tensor and the block of its rows. */
static void load_label(const builder *b, const load *l, char *label, size_t size) {
  int rows = l->tensor == 'q' ? b->facts->variant->tile.block_m : b->facts->variant->tile.block_n;
  snprintf(label, size, "%c %d", l->tensor - 'a' + 'A', l->row / (rows > 0 ? rows : 1));
}

static void draw_load(builder *b, const load *l) {
  char label[32];
  load_label(b, l, label, sizeof label);
  int in = lane(b, LOADS * SECTION + order_of(l->tensor) * 100 + l->slot, "loads", "%c slot %d",
                l->tensor, l->slot);
  bar(b, in, KILN__BAR_FLIGHT, l->begin, l->end, label,
      "%s: load in flight\nrows from %d on, head %d, batch %d; %g bytes\nissued %.0f, landed "
      "%.0f\n%s",
      label, l->row, l->head, l->batch, l->bytes, l->begin, l->end, l->site);
  bar(b, in, KILN__BAR_LANDED, l->end, l->released, label,
      "%s: in shared memory\nlanded %.0f, let go %.0f\n%s", label, l->end, l->released, l->site);
  int stream = order_of(l->tensor) - 1;
  if (stream >= 0 && b->num_blocks[stream] < STREAM_MAX)
    b->blocks[stream][b->num_blocks[stream]++] =
        l->row / (b->facts->variant->tile.block_n > 0 ? b->facts->variant->tile.block_n : 1);
}

/* ---- products ---- */

/* The n-th product of one kind works on the block of the n-th load. */
static void product_label(const builder *b, bool scores, int n, char *label, size_t size) {
  int stream = scores ? 0 : 1;
  if (n < b->num_blocks[stream])
    snprintf(label, size, "%s %d", scores ? "S" : "O", b->blocks[stream][n]);
  else
    snprintf(label, size, "%s", scores ? "S" : "O");
}

static const char *product_sentence(bool scores) { return scores ? "s = q k^T" : "o += p v"; }

static void draw_wgmma(builder *b, const json_t *event, int counts[WARPGROUPS][2]) {
  char label[32], section[32], with[32];
  int group = whole(event, "warpgroup") % WARPGROUPS;
  bool scores = word(event, "name")[0] == 's';
  double issued = number(event, "issued"), begin = number(event, "begin"),
         end = number(event, "end");
  product_label(b, scores, counts[group][scores]++, label, sizeof label);
  snprintf(section, sizeof section, "warpgroup %d", group);
  snprintf(with, sizeof with, "wg%d", group);
  int in = lane(b, (COMPUTING + group) * SECTION, section, "wgmma");
  int cores = lane(b, TENSOR * SECTION, "tensor cores", "of the block");
  kiln__bar_kind kind = scores ? KILN__BAR_SCORES : KILN__BAR_RESULTS;
  bar(b, in, KILN__BAR_QUEUED, fmax(issued, b->product_end[group]), begin, "",
      "%s: issued %.0f, begins %.0f", label, issued, begin);
  b->product_end[group] = end;
  for (int i = 0; i < 2; i++)
    bar(b, i ? cores : in, kind, begin, end, i ? with : label,
        "%s: %s, warpgroup %d, %d wgmma\nissued %.0f, runs %.0f to %.0f, waited for at %.0f\n%s",
        label, product_sentence(scores), group, whole(event, "products"), issued, begin, end,
        number(event, "waited"), place(event));
}

static void draw_mma(builder *b, const json_t *event, int counts[WARPS][2]) {
  char label[32];
  int warp = whole(event, "warp") % WARPS;
  bool scores = word(event, "name")[0] == 's';
  product_label(b, scores, counts[warp][scores]++, label, sizeof label);
  bar(b, warp_lane(b, warp), scores ? KILN__BAR_SCORES : KILN__BAR_RESULTS, number(event, "begin"),
      number(event, "end"), label, "%s: %s, warp %d, %d mma\nruns %.0f to %.0f\n%s", label,
      product_sentence(scores), warp, whole(event, "products"), number(event, "begin"),
      number(event, "end"), place(event));
}

static void draw_products(builder *b) {
  int wgmma[WARPGROUPS][2] = {{0}}, mma[WARPS][2] = {{0}};
  size_t i;
  const json_t *event;
  json_array_foreach((json_t *)b->events, i, event) {
    if (is_kind(event, "product")) draw_wgmma(b, event, wgmma);
    if (is_kind(event, "mma")) draw_mma(b, event, mma);
  }
}

/* ---- what a warp does besides ---- */

static void draw_wait(builder *b, const json_t *event) {
  char label[32];
  const char *name = word(event, "name");
  bool numbered = strstr(name, "_full") || strstr(name, "_empty");
  if (strcmp(name, "barrier") == 0)
    snprintf(label, sizeof label, "%s %d", name, whole(event, "index"));
  else if (numbered)
    snprintf(label, sizeof label, "%s[%d]", name, whole(event, "index"));
  else
    snprintf(label, sizeof label, "%s", name);
  double begin = number(event, "begin"), end = number(event, "end");
  int warp = whole(event, "warp") % WARPS;
  if (!b->shown[warp]) return;
  bool behind = strcmp(name, "wgmma_wait") == 0;
  bar(b, warp_lane(b, warp), behind ? KILN__BAR_BEHIND : KILN__BAR_WAIT, begin, end, label,
      "waits for %s\n%.0f to %.0f, %.0f clocks\n%s", label, begin, end, end - begin, place(event));
}

static void draw_work(builder *b, const json_t *event, kiln__bar_kind kind, const char *label) {
  double begin = number(event, "begin"), end = number(event, "end");
  bar(b, warp_lane(b, whole(event, "warp") % WARPS), kind, begin, end, label,
      "%s, warp %d\n%.0f to %.0f, %.0f clocks", label, whole(event, "warp"), begin, end,
      end - begin);
}

static void draw_store(builder *b, const json_t *event) {
  int group = whole(event, "warp") / 4;
  int in = lane(b, STORES * SECTION + group, "stores", "o, warpgroup %d", group);
  double begin = number(event, "begin"), end = number(event, "end");
  for (int i = 0; i < b->t->num_bars; i++) {
    kiln__bar *other = &b->t->bars[i];
    if (other->lane != in || begin > other->end) continue;
    other->end = fmax(other->end, end);
    return;
  }
  bar(b, in, KILN__BAR_STORE, begin, end, "o",
      "stores of o, warpgroup %d\nthe first: issued %.0f, shared memory read %.0f, written "
      "%.0f\n%s",
      group, begin, number(event, "read"), end, place(event));
}

static void draw_events(builder *b) {
  size_t i;
  const json_t *event;
  json_array_foreach((json_t *)b->events, i, event) {
    if (is_kind(event, "wait")) draw_wait(b, event);
    if (is_kind(event, "softmax")) draw_work(b, event, KILN__BAR_SOFTMAX, "softmax");
    if (is_kind(event, "output")) draw_work(b, event, KILN__BAR_OUTPUT, "output");
    if (is_kind(event, "store")) draw_store(b, event);
  }
}

/* Warps that have products compute; the others load. One that only meets the others at the start
 * is not shown. */
static void find_warps(builder *b) {
  size_t i;
  const json_t *event;
  json_array_foreach((json_t *)b->events, i, event) {
    int warp = whole(event, "warp") % WARPS, group = whole(event, "warpgroup");
    if (json_object_get(event, "warp") && strcmp(word(event, "name"), "sync_threads") != 0)
      b->shown[warp] = true;
    if (is_kind(event, "mma")) b->multiplies[warp] = true;
    for (int w = 0; is_kind(event, "product") && w < 4; w++)
      if (group < WARPGROUPS) b->computes[4 * group + w] = true;
  }
}

/* ---- figures ---- */

static bool is_product(const kiln__bar *bar) {
  return bar->kind == KILN__BAR_SCORES || bar->kind == KILN__BAR_RESULTS;
}

static int compare_bars(const void *x, const void *y) {
  const kiln__bar *a = x, *b = y;
  return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Clocks of [begin, end) in which some product runs; bars are by begin. */
static double busy_within(const kiln__timeline *t, double begin, double end) {
  double sum = 0, until = begin;
  for (int i = 0; i < t->num_bars && t->bars[i].begin < end; i++) {
    if (!is_product(&t->bars[i]) || t->bars[i].end <= until) continue;
    double from = fmax(until, t->bars[i].begin), to = fmin(end, t->bars[i].end);
    if (to > from) sum += to - from;
    until = fmax(until, to);
  }
  return sum;
}

static void count(kiln__timeline *t) {
  double softmax = 0, hidden = 0;
  if (t->num_bars) qsort(t->bars, (size_t)t->num_bars, sizeof *t->bars, compare_bars);
  for (int i = 0; i < t->num_bars; i++) {
    if (t->bars[i].kind != KILN__BAR_SOFTMAX) continue;
    softmax += t->bars[i].end - t->bars[i].begin;
    hidden += busy_within(t, t->bars[i].begin, t->bars[i].end);
  }
  t->tensor_busy = t->clocks > 0 ? busy_within(t, 0, t->clocks) / t->clocks : 0;
  t->softmax_hidden = softmax > 0 ? hidden / softmax : 0;
}

/* ---- all ---- */

static int compare_lanes(const void *x, const void *y) {
  return ((const kiln__lane *)x)->order - ((const kiln__lane *)y)->order;
}

static void sort_lanes(kiln__timeline *t) {
  for (int i = 0; i < t->num_bars; i++) t->bars[i].lane = t->lanes[t->bars[i].lane].order;
  if (t->num_lanes) qsort(t->lanes, (size_t)t->num_lanes, sizeof *t->lanes, compare_lanes);
  for (int i = 0; i < t->num_bars; i++) {
    int n = 0;
    while (t->lanes[n].order != t->bars[i].lane) n++;
    t->bars[i].lane = n;
  }
}

kiln_status kiln__timeline_create(const kiln__page_facts *facts, const json_t *trace,
                                  kiln__timeline *timeline) {
  const json_t *events = json_object_get(trace, "events");
  *timeline = (kiln__timeline){.clocks = number(trace, "clocks")};
  builder *b = calloc(1, sizeof *b);
  load *loads = calloc(json_array_size(events) + 1, sizeof *loads);
  kiln_status status = KILN_OUT_OF_MEMORY;
  if (!b || !loads) goto done;
  b->facts = facts;
  b->events = events;
  b->t = timeline;
  b->loads = loads;
  find_warps(b);
  read_loads(b);
  for (int i = 0; i < b->num_loads; i++) draw_load(b, &loads[i]);
  draw_products(b);
  draw_events(b);
  if (b->failed) goto done;
  sort_lanes(timeline);
  count(timeline);
  status = KILN_OK;
done:
  free(loads);
  free(b);
  if (status != KILN_OK) kiln__timeline_destroy(timeline);
  return status;
}

void kiln__timeline_destroy(kiln__timeline *timeline) {
  free(timeline->bars);
  free(timeline->lanes);
  *timeline = (kiln__timeline){0};
}
