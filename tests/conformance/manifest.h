/* The cases of a folder that compose.lua wrote, and the answers that a GPU gave to them. Nothing
 * here knows how a case is run. Called by conformance.c. */
#ifndef KILN_TESTS_CONFORMANCE_MANIFEST_H
#define KILN_TESTS_CONFORMANCE_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/device.h"

enum { CASE_MAPS = 4, CASE_WORDS = 32, CASE_CHECKS = 4, CASES = 256, CASE_NAME = 64 };

typedef enum case_space { SPACE_IN, SPACE_OUT, SPACE_VALUE } case_space;

typedef struct case_map {
  case_space space;
  kiln__tensor_map map; /* its address is an offset into the space */
} case_map;

typedef struct case_word { /* of the struct that is the last parameter */
  case_space space;
  int64_t value;
} case_word;

typedef struct case_check { /* how bytes of the answer are compared */
  char kind[8];             /* "bits", "f32", "fp16", "bf16" */
  size_t offset, bytes;
  double relative, absolute;
} case_check;

typedef struct conformance_case {
  char name[CASE_NAME], id[20], arch[16], entry[CASE_NAME];
  kiln__entry_shape shape;
  uint32_t grid[2];
  size_t in_bytes, out_bytes;
  case_map maps[CASE_MAPS];
  case_word words[CASE_WORDS];
  case_check checks[CASE_CHECKS];
  int num_maps, num_words, num_checks;
} conformance_case;

typedef struct manifest {
  conformance_case cases[CASES];
  int num_cases;
} manifest;

/* What a GPU said: the digest of the whole answer and its first bytes, all of them where a bound
 * is compared. */
typedef struct recorded {
  char name[CASE_NAME], id[20], digest[20]; /* digest: FNV-1a, 64 bits, in hex */
  size_t bytes, kept, offset;               /* of the answer; of its beginning in the .bin file */
} recorded;

typedef struct answers {
  recorded list[CASES];
  char waiting[CASES][CASE_NAME]; /* cases that no GPU has answered yet */
  int count, num_waiting;
  unsigned char *bin;
  size_t bin_bytes;
} answers;

/* 0, or -1 after a sentence on stderr. */
int kiln__manifest_read(const char *folder, manifest *out);
int kiln__answers_read(const char *prefix, answers *out); /* PREFIX.txt, PREFIX.bin */
void kiln__answers_free(answers *a);

/* The whole file `folder/name suffix`, malloc'd and with a 0 behind it; NULL after a sentence. */
char *kiln__case_file(const char *folder, const char *name, const char *suffix, size_t *bytes);

/* Whether a case is known to have no record yet. */
int kiln__answer_waits(const conformance_case *c, const answers *all);

/* Whether an answer is what was recorded; says the first difference on stdout. */
int kiln__answer_agrees(const conformance_case *c, const answers *all, const unsigned char *answer,
                        const char *schedule);

#endif
