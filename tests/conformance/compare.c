/* Whether the emulator's answer to a case is the GPU's: bit for bit, or numbers within a bound. A
 * bound never forgives an infinity or a NaN on one side alone. See manifest.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/number.h"
#include "tests/conformance/manifest.h"

static void digest(const unsigned char *bytes, size_t count, char out[20]) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
  snprintf(out, 20, "%016" PRIx64, hash);
}

static const recorded *find(const answers *all, const conformance_case *c) {
  for (int i = 0; i < all->count; i++)
    if (!strcmp(all->list[i].name, c->name)) return &all->list[i];
  return NULL;
}

/* Whole answers by their digests; the beginnings, where they are at hand, say where they differ. */
static int bits_agree(const conformance_case *c, const recorded *r, const unsigned char *wanted,
                      const unsigned char *answer, const char *schedule) {
  char own[20];
  digest(answer, c->out_bytes, own);
  if (!strcmp(own, r->digest)) return 1;
  for (size_t at = 0; at + 4 <= r->kept; at += 4) {
    if (!memcmp(wanted + at, answer + at, 4)) continue;
    uint32_t x, y;
    memcpy(&x, answer + at, 4);
    memcpy(&y, wanted + at, 4);
    printf("%s (%s): byte %zu: the emulator says %08" PRIx32 ", the GPU %08" PRIx32 "\n", c->name,
           schedule, at, x, y);
    return 0;
  }
  printf("%s (%s): another digest than the GPU's; the first %zu bytes agree\n", c->name, schedule,
         r->kept);
  return 0;
}

static double number_at(const case_check *k, const unsigned char *bytes, size_t index) {
  if (!strcmp(k->kind, "f32")) {
    float x;
    memcpy(&x, bytes + k->offset + 4 * index, sizeof x);
    return (double)x;
  }
  uint16_t x;
  memcpy(&x, bytes + k->offset + 2 * index, sizeof x);
  return (double)(!strcmp(k->kind, "bf16") ? kiln__bf16_decode(x) : kiln__fp16_decode(x));
}

static int is_near(const case_check *k, double x, double wanted) {
  if (isnan(x) || isnan(wanted)) return isnan(x) && isnan(wanted);
  if (isinf(x) || isinf(wanted)) return x == wanted;
  return fabs(x - wanted) <= k->relative * fabs(wanted) + k->absolute;
}

static int numbers_agree(const conformance_case *c, const case_check *k,
                         const unsigned char *wanted, const unsigned char *answer,
                         const char *schedule) {
  const size_t count = k->bytes / (strcmp(k->kind, "f32") ? 2 : 4);
  for (size_t i = 0; i < count; i++) {
    const double x = number_at(k, answer, i), y = number_at(k, wanted, i);
    if (is_near(k, x, y)) continue;
    printf("%s (%s): number %zu: the emulator says %.9g, the GPU %.9g\n", c->name, schedule, i, x,
           y);
    return 0;
  }
  return 1;
}

int kiln__answer_waits(const conformance_case *c, const answers *all) {
  for (int i = 0; i < all->num_waiting; i++)
    if (!strcmp(all->waiting[i], c->name)) return find(all, c) == NULL;
  return 0;
}

int kiln__answer_agrees(const conformance_case *c, const answers *all, const unsigned char *answer,
                        const char *schedule) {
  const recorded *r = find(all, c);
  if (!r) {
    printf("%s: no recorded answer; run tools/gpu/conformance.py\n", c->name);
    return 0;
  }
  if (strcmp(r->id, c->id) || r->bytes != c->out_bytes) {
    printf("%s: the recorded answer is an older text's; run tools/gpu/conformance.py\n", c->name);
    return 0;
  }
  const unsigned char *wanted = all->bin + r->offset;
  if (!strcmp(c->checks[0].kind, "bits")) return bits_agree(c, r, wanted, answer, schedule);
  if (r->kept != r->bytes) {
    printf("%s: the record does not hold the whole answer\n", c->name);
    return 0;
  }
  for (int i = 0; i < c->num_checks; i++)
    if (!numbers_agree(c, &c->checks[i], wanted, answer, schedule)) return 0;
  return 1;
}
