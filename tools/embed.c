/* embed OUT [NAME PATH]...: writes a C file that holds each PATH's bytes under its NAME.
 * Output depends on the names and the bytes alone, never on a path, the order of the arguments or
 * the clock, so that two builds of one tree are the same. Run at build time by
 * generator/CMakeLists.txt;
 * generator/embedded.h declares what it writes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct input {
  const char *name;
  const char *path;
} input;

static int by_name(const void *a, const void *b) {
  return strcmp(((const input *)a)->name, ((const input *)b)->name);
}

static int fail(const char *path) {
  fprintf(stderr, "embed: %s: %s\n", path, strerror(errno));
  return 1;
}

/* A trailing zero lets a reader treat the bytes as a string. */
static int write_bytes(FILE *out, size_t index, const input *in, size_t *length) {
  FILE *file = fopen(in->path, "rb");
  if (!file) return fail(in->path);
  fprintf(out, "static const unsigned char file_%zu[] = {", index);
  size_t count = 0;
  for (int c; (c = getc(file)) != EOF; count++) fprintf(out, "%s%d,", count % 24 ? "" : "\n", c);
  fprintf(out, "\n0};\n\n");
  int failed = ferror(file);
  fclose(file);
  *length = count;
  return failed ? fail(in->path) : 0;
}

static int write_all(FILE *out, const input *inputs, size_t count, size_t *lengths) {
  fprintf(out, "/* Made by tools/embed.c; do not edit. */\n#include \"generator/embedded.h\"\n\n");
  for (size_t i = 0; i < count; i++)
    if (write_bytes(out, i, &inputs[i], &lengths[i])) return 1;
  fprintf(out, "const kiln__embedded_file kiln__embedded_files[] = {\n");
  for (size_t i = 0; i < count; i++)
    fprintf(out, "  {\"%s\", file_%zu, %zu},\n", inputs[i].name, i, lengths[i]);
  fprintf(out, "  {NULL, NULL, 0},\n};\nconst size_t kiln__embedded_count = %zu;\n", count);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 2 || argc % 2) {
    fprintf(stderr, "usage: embed OUT [NAME PATH]...\n");
    return 2;
  }
  size_t count = (size_t)(argc - 2) / 2;
  input *inputs = calloc(count + 1, sizeof *inputs);
  size_t *lengths = calloc(count + 1, sizeof *lengths);
  FILE *out = fopen(argv[1], "wb");
  int failed = 1;
  if (!inputs || !lengths || !out) {
    fail(argv[1]);
    goto done;
  }
  for (size_t i = 0; i < count; i++) inputs[i] = (input){argv[2 + 2 * i], argv[3 + 2 * i]};
  qsort(inputs, count, sizeof *inputs, by_name);
  failed = write_all(out, inputs, count, lengths);

done:
  if (out && fclose(out)) failed = fail(argv[1]);
  if (failed) remove(argv[1]);
  free(lengths);
  free(inputs);
  return failed;
}
