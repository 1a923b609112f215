/* Reads what compose.lua wrote and what tools/gpu/conformance.py recorded: see manifest.h. */
#include "tests/conformance/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 512 };

/* ---- files ---- */

static char *read_stream(FILE *file, size_t *bytes) {
  if (fseek(file, 0, SEEK_END) != 0) return NULL;
  const long size = ftell(file);
  if (size < 0 || fseek(file, 0, SEEK_SET) != 0) return NULL;
  char *text = malloc((size_t)size + 1);
  if (!text) return NULL;
  *bytes = fread(text, 1, (size_t)size, file);
  text[*bytes] = 0;
  if (*bytes == (size_t)size) return text;
  free(text);
  return NULL;
}

static char *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  char *text = file ? read_stream(file, bytes) : NULL;
  if (file) fclose(file);
  if (!text) fprintf(stderr, "conformance: %s cannot be read\n", path);
  return text;
}

char *kiln__case_file(const char *folder, const char *name, const char *suffix, size_t *bytes) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
  return read_file(path, bytes);
}

/* ---- the manifest ---- */

static int read_space(const char *word, case_space *space) {
  static const char *const names[] = {"in", "out", "value"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(word, names[i])) continue;
    *space = (case_space)i;
    return 1;
  }
  return 0;
}

static int read_head(const char *line, conformance_case *c) {
  return sscanf(line,
                "case %63s %19s %15s %63s %" SCNd32 " %" SCNu32 " %" SCNu32 " %" SCNd32 " %" SCNd64
                " %zu %zu",
                c->name, c->id, c->arch, c->entry, &c->shape.threads, &c->grid[0], &c->grid[1],
                &c->shape.cluster, &c->shape.shared_bytes, &c->in_bytes, &c->out_bytes) == 11;
}

/* The next word as a number; 0 when there is none. */
static int read_number(const char **at, uint64_t *value) {
  char *end;
  *value = strtoull(*at, &end, 10);
  const int found = end != *at;
  *at = end;
  return found;
}

static int read_map_numbers(const char *at, kiln__tensor_map *map, char dtype[8]) {
  uint64_t offset, x = 0;
  int found = read_number(&at, &offset);
  for (int i = 0; i < map->rank; i++) found = found && read_number(&at, &map->dims[i]);
  for (int i = 0; i < map->rank - 1; i++) found = found && read_number(&at, &map->strides[i]);
  for (int i = 0; i < map->rank; i++) {
    found = found && read_number(&at, &x);
    map->box[i] = (uint32_t)x;
  }
  found = found && read_number(&at, &x) && sscanf(at, " %7s", dtype) == 1;
  map->swizzle = (int32_t)x;
  map->address = (const void *)(uintptr_t)offset;
  return found;
}

static int read_dtype(const char *word, kiln_dtype *dtype) {
  static const char *const names[] = {"fp16", "bf16", "e4m3", "fp32"};
  for (int i = 0; i < 4; i++) {
    if (strcmp(word, names[i])) continue;
    *dtype = (kiln_dtype)i;
    return 1;
  }
  return 0;
}

/* "map" is of rank 4, "map2" of rank 2. */
static int read_map(const char *line, conformance_case *c) {
  if (c->num_maps == CASE_MAPS) return 0;
  case_map *m = &c->maps[c->num_maps++];
  char space[8], dtype[8];
  int length = 0;
  m->map.rank = line[3] == ' ' ? 4 : line[3] - '0';
  if (m->map.rank < 1 || m->map.rank > KILN__TENSOR_RANK) return 0;
  if (sscanf(line, "%*s %7s%n", space, &length) != 1) return 0;
  return read_map_numbers(line + length, &m->map, dtype) && read_dtype(dtype, &m->map.dtype) &&
         read_space(space, &m->space) && m->space != SPACE_VALUE;
}

static int read_word(const char *line, conformance_case *c) {
  char space[8];
  if (c->num_words == CASE_WORDS) return 0;
  case_word *w = &c->words[c->num_words++];
  return sscanf(line, "word %7s %" SCNd64, space, &w->value) == 2 && read_space(space, &w->space);
}

static int read_check(const char *line, conformance_case *c) {
  if (c->num_checks == CASE_CHECKS) return 0;
  case_check *k = &c->checks[c->num_checks++];
  return sscanf(line, "check %7s %zu %zu %lf %lf", k->kind, &k->offset, &k->bytes, &k->relative,
                &k->absolute) == 5 &&
         k->offset <= c->out_bytes && k->bytes <= c->out_bytes - k->offset;
}

static int read_line(const char *line, manifest *m) {
  if (!strncmp(line, "case ", 5)) {
    if (m->num_cases == CASES) return 0;
    return read_head(line, &m->cases[m->num_cases++]);
  }
  if (m->num_cases == 0) return 0;
  conformance_case *c = &m->cases[m->num_cases - 1];
  if (!strncmp(line, "map", 3)) return read_map(line, c);
  if (!strncmp(line, "word ", 5)) return read_word(line, c);
  if (!strncmp(line, "check ", 6)) return read_check(line, c);
  return !strcmp(line, "end\n");
}

int kiln__manifest_read(const char *folder, manifest *out) {
  char path[PATH_BYTES], line[LINE_BYTES];
  memset(out, 0, sizeof *out);
  snprintf(path, sizeof path, "%s/manifest", folder);
  FILE *file = fopen(path, "r");
  int is_good = file != NULL;
  while (is_good && fgets(line, sizeof line, file)) is_good = read_line(line, out);
  if (file) fclose(file);
  if (is_good && out->num_cases > 0) return 0;
  fprintf(stderr, "conformance: %s cannot be read as a manifest\n", path);
  return -1;
}

/* ---- recorded answers ---- */

static int read_recorded(const char *line, answers *a) {
  if (!strncmp(line, "waiting ", 8))
    return a->num_waiting < CASES &&
           sscanf(line, "waiting %63s", a->waiting[a->num_waiting++]) == 1;
  if (a->count == CASES) return 0;
  recorded *r = &a->list[a->count++];
  return sscanf(line, "%63s %19s %19s %zu %zu %zu", r->name, r->id, r->digest, &r->bytes,
                &r->offset, &r->kept) == 6 &&
         r->kept <= r->bytes && r->offset <= a->bin_bytes && r->kept <= a->bin_bytes - r->offset;
}

int kiln__answers_read(const char *prefix, answers *out) {
  char path[PATH_BYTES], line[LINE_BYTES];
  memset(out, 0, sizeof *out);
  snprintf(path, sizeof path, "%s.bin", prefix);
  out->bin = (unsigned char *)read_file(path, &out->bin_bytes);
  if (!out->bin) return -1;
  snprintf(path, sizeof path, "%s.txt", prefix);
  FILE *file = fopen(path, "r");
  int is_good = file != NULL;
  while (is_good && fgets(line, sizeof line, file))
    is_good = line[0] == '#' || read_recorded(line, out);
  if (file) fclose(file);
  if (is_good) return 0;
  fprintf(stderr, "conformance: %s cannot be read as a list of answers\n", path);
  kiln__answers_free(out);
  return -1;
}

void kiln__answers_free(answers *a) {
  free(a->bin);
  a->bin = NULL;
}
