/* kiln pack: builds a file of compiled kernels for production, and looks at one, checks it, takes
 * it apart, signs it, turns it into C. pack.h states what holds of every file that is opened. */
#include "pack.h"

#include "file.h"
#include "out.h"
#include "selection.h"
#include "verbs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const kiln__flag flags[] = {
    {"-o", "PATH", "build: the file, default kiln.pack; extract, embed: the directory"},
    {"--dry-run", NULL, "build: count, size and time, by estimate; nothing is compiled"},
    {"--manifest", "FILE", "build: the kernels that a Lua file lists (docs/pack.md)"},
    {"--from", "FILE", "build: the kernels of these problems, as KILN_RECORD writes them"},
    {"--sources", NULL, "build: also each kernel's text, which extract then writes as .cu"},
    {"--line-info", NULL, "build: keep line tables, for profilers; about four times the size"},
    {"--max-size", "N", "build: refuse a larger pack as soon as it is known (5M, 800K)"},
    {"--key", "KEY", "verify: public key, 64 hex digits or a file; sign: file of the secret key"},
    {"--json", NULL, "one object a line"},
    {0},
};

/* ---- opening ---- */

static kiln_status open_pack(kiln_context *ctx, const char *path, kiln_pack **pack) {
  kiln_status status = kiln_pack_open_file(ctx, path, NULL, pack);
  if (status == KILN_OK) status = kiln_pack_verify(ctx, *pack, NULL);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(ctx, status);
}

static kiln_pack_info info_of(const kiln_pack *pack) {
  kiln_pack_info info = {.size = sizeof info};
  kiln_pack_get_info(pack, &info);
  return info;
}

static kiln_pack_kernel kernel_of(const kiln_pack *pack, int64_t index) {
  kiln_pack_kernel kernel = {.size = sizeof kernel};
  kiln_pack_get_kernel(pack, index, &kernel);
  return kernel;
}

/* ---- ls ---- */

static int compare_numbers(const int *a, const int *b, int count) {
  for (int i = 0; i < count; i++)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

/* By spec, then tile. */
static int compare_kernels(const void *first, const void *second) {
  const kiln_pack_kernel *a = first, *b = second;
  const int x[] = {a->spec.pass,       a->spec.algorithm,  a->spec.dtype,         a->spec.head_dim,
                   a->spec.head_dim_v, a->spec.mask,       a->spec.deterministic, a->tile.block_m,
                   a->tile.block_n,    a->tile.num_stages, a->tile.num_warps};
  const int y[] = {b->spec.pass,       b->spec.algorithm,  b->spec.dtype,         b->spec.head_dim,
                   b->spec.head_dim_v, b->spec.mask,       b->spec.deterministic, b->tile.block_m,
                   b->tile.block_n,    b->tile.num_stages, b->tile.num_warps};
  const int arch = strcmp(a->spec.arch, b->spec.arch);
  if (arch) return arch;
  const int numbers = compare_numbers(x, y, sizeof x / sizeof x[0]);
  return numbers ? numbers : strcmp(a->kernel_id, b->kernel_id);
}

/* All kernels by spec; the caller frees the list. */
static kiln_pack_kernel *list_kernels(const kiln_pack *pack) {
  const int64_t count = info_of(pack).num_kernels;
  kiln_pack_kernel *list = calloc((size_t)count, sizeof *list);
  for (int64_t i = 0; list && i < count; i++) list[i] = kernel_of(pack, i);
  if (list)
    qsort(list, (size_t)count, sizeof *list, compare_kernels);
  else
    kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
  return list;
}

static json_t *kernel_json(const kiln_pack_kernel *kernel) {
  json_t *object = json_object(), *identity = json_loads(kernel->identity, 0, NULL);
  json_object_set_new(object, "kernel_id", json_string(kernel->kernel_id));
  json_object_set_new(object, "source_id", json_string(kernel->source_id));
  kiln__variant_json(object, &kernel->spec, &kernel->tile);
  json_object_set_new(object, "default", json_boolean(kernel->is_default));
  json_object_set(object, "compiler", json_object_get(identity, "compiler"));
  json_object_set_new(object, "bytes", json_integer((json_int_t)kernel->image_bytes));
  json_object_set_new(object, "sha256", json_string(kernel->sha256));
  json_decref(identity);
  return object;
}

static kiln_status print_kernel(const kiln__args *args, const kiln_pack_kernel *kernel) {
  if (kiln__args_has(args, "--json")) return kiln__print_json(kernel_json(kernel));
  printf("%.12s  %-32s tile %dx%d, %d stages, %d warps; %.1f KB%s\n", kernel->kernel_id,
         kiln__variant_describe(&kernel->spec).text, (int)kernel->tile.block_m,
         (int)kernel->tile.block_n, (int)kernel->tile.num_stages, (int)kernel->tile.num_warps,
         (double)kernel->image_bytes / 1e3, kernel->is_default ? "; default" : "");
  return KILN_OK;
}

static kiln_status run_ls(kiln_context *ctx, const kiln__args *args) {
  kiln_pack *pack = NULL;
  kiln_status status = open_pack(ctx, args->words[1], &pack);
  kiln_pack_kernel *list = status == KILN_OK ? list_kernels(pack) : NULL;
  if (status == KILN_OK && !list) status = KILN_OUT_OF_MEMORY;
  for (int64_t i = 0; status == KILN_OK && i < info_of(pack).num_kernels; i++)
    status = print_kernel(args, &list[i]);
  free(list);
  kiln_pack_destroy(pack);
  return status;
}

/* ---- verify and sign ---- */

static kiln_status print_pack(const kiln__args *args, const kiln_pack *pack, const char *path) {
  const kiln_pack_info info = info_of(pack);
  if (kiln__args_has(args, "--json"))
    return kiln__print_json(json_pack("{s:s, s:I, s:I, s:b, s:s, s:s, s:s?}", "path", path,
                                      "kernels", (json_int_t)info.num_kernels, "bytes",
                                      (json_int_t)info.bytes, "sources", info.has_sources, "kiln",
                                      info.kiln, "root", info.root, "public_key", info.public_key));
  printf("%s: %lld kernels of Kiln %s%s, %.2f MB, whole\nroot %s\n%s%s\n", path,
         (long long)info.num_kernels, info.kiln, info.has_sources ? " with their sources" : "",
         (double)info.bytes / 1e6, info.root, info.public_key ? "signed by " : "not signed",
         info.public_key ? info.public_key : "");
  return KILN_OK;
}

static kiln_status run_verify(kiln_context *ctx, const kiln__args *args) {
  unsigned char key[32];
  kiln_pack *pack = NULL;
  const char *given = kiln__args_get(args, "--key");
  kiln_status status = given ? kiln__public_key_read(given, key) : KILN_OK;
  if (status == KILN_OK) status = open_pack(ctx, args->words[1], &pack);
  if (status == KILN_OK && given) {
    status = kiln_pack_verify(ctx, pack, key);
    if (status != KILN_OK) kiln__fail_context(ctx, status);
  }
  if (status == KILN_OK) status = print_pack(args, pack, args->words[1]);
  kiln_pack_destroy(pack);
  return status;
}

static kiln_status run_sign(kiln_context *ctx, const kiln__args *args) {
  unsigned char key[KILN__KEY_MAX];
  size_t key_bytes = 0, size = 0;
  kiln_pack *pack = NULL, *made = NULL;
  const char *given = kiln__args_get(args, "--key"), *path = args->words[1];
  if (!given)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "sign needs --key, the file of an Ed25519 secret key: 32 random bytes (head "
                      "-c 32 /dev/urandom), or seed and public key, 64, raw or in hex");
  kiln_status status = open_pack(ctx, path, &pack);
  if (status == KILN_OK) status = kiln__key_read(given, key, &key_bytes);
  if (status == KILN_OK) {
    status = kiln_pack_sign(ctx, pack, key, key_bytes, &made);
    if (status != KILN_OK) kiln__fail_context(ctx, status);
  }
  memset(key, 0, sizeof key);
  if (status == KILN_OK) {
    const void *bytes = kiln_pack_bytes(made, &size);
    status = kiln__file_write(path, bytes, size);
  }
  if (status == KILN_OK) status = print_pack(args, made, path);
  kiln_pack_destroy(made);
  kiln_pack_destroy(pack);
  return status;
}

/* ---- diff ---- */

/* What differs first between two kernels of one spec and tile; NULL = nothing. */
static const char *difference(const kiln_pack_kernel *a, const kiln_pack_kernel *b) {
  static const char *const fields[] = {"format", "kiln",     "source_id", "options",
                                       "arch",   "compiler", "layout"};
  const char *found = NULL;
  json_t *x = json_loads(a->identity, 0, NULL), *y = json_loads(b->identity, 0, NULL);
  for (int i = 6; i >= 0; i--)
    if (!json_equal(json_object_get(x, fields[i]), json_object_get(y, fields[i])))
      found = fields[i];
  json_decref(x);
  json_decref(y);
  if (found) return found;
  if (strcmp(a->sha256, b->sha256) != 0) return "image";
  if (strcmp(a->record, b->record) != 0) return "record";
  return a->is_default != b->is_default ? "default" : NULL;
}

static int same_place(const kiln_pack_kernel *a, const kiln_pack_kernel *b) {
  kiln_pack_kernel x = *a, y = *b;
  x.kernel_id = y.kernel_id = "";
  return compare_kernels(&x, &y) == 0;
}

/* where: "only A", "only B", or the field in which both differ. */
static kiln_status print_difference(const kiln__args *args, const kiln_pack_kernel *kernel,
                                    const char *where) {
  if (kiln__args_has(args, "--json")) {
    json_t *object = kernel_json(kernel);
    json_object_set_new(object, "differs", json_string(where));
    return kiln__print_json(object);
  }
  printf("%-10s  %.12s  %s tile %dx%d, %d stages, %d warps\n", where, kernel->kernel_id,
         kiln__variant_describe(&kernel->spec).text, (int)kernel->tile.block_m,
         (int)kernel->tile.block_n, (int)kernel->tile.num_stages, (int)kernel->tile.num_warps);
  return KILN_OK;
}

static const kiln_pack_kernel *find_kernel(const kiln_pack_kernel *list, int64_t count,
                                           const kiln_pack_kernel *like) {
  for (int64_t i = 0; i < count; i++)
    if (same_place(&list[i], like)) return &list[i];
  return NULL;
}

static kiln_status compare_lists(const kiln__args *args, const kiln_pack_kernel *a, int64_t num_a,
                                 const kiln_pack_kernel *b, int64_t num_b, int64_t *differences) {
  kiln_status status = KILN_OK;
  for (int64_t i = 0; status == KILN_OK && i < num_a; i++) {
    const kiln_pack_kernel *other = find_kernel(b, num_b, &a[i]);
    const char *where = other ? difference(&a[i], other) : "only A";
    if (!where) continue;
    ++*differences;
    status = print_difference(args, &a[i], where);
  }
  for (int64_t i = 0; status == KILN_OK && i < num_b; i++) {
    if (find_kernel(a, num_a, &b[i])) continue;
    ++*differences;
    status = print_difference(args, &b[i], "only B");
  }
  return status;
}

static kiln_status run_diff(kiln_context *ctx, const kiln__args *args) {
  kiln_pack *packs[2] = {NULL, NULL};
  kiln_pack_kernel *lists[2] = {NULL, NULL};
  int64_t differences = 0;
  kiln_status status = KILN_OK;
  for (int i = 0; status == KILN_OK && i < 2; i++) {
    status = open_pack(ctx, args->words[i + 1], &packs[i]);
    if (status == KILN_OK && !(lists[i] = list_kernels(packs[i]))) status = KILN_OUT_OF_MEMORY;
  }
  if (status == KILN_OK)
    status = compare_lists(args, lists[0], info_of(packs[0]).num_kernels, lists[1],
                           info_of(packs[1]).num_kernels, &differences);
  if (status == KILN_OK && !differences && !kiln__args_has(args, "--json"))
    puts("both hold the same kernels");
  for (int i = 0; i < 2; i++) {
    free(lists[i]);
    kiln_pack_destroy(packs[i]);
  }
  return status;
}

/* ---- extract and embed ---- */

static kiln_status need_folder(const kiln__args *args, const char **folder) {
  *folder = kiln__args_get(args, "-o");
  if (*folder) return kiln__directory_make(*folder);
  return kiln__fail(KILN_INVALID_ARGUMENT, "pack %s needs -o DIR, where its files go",
                    args->words[0]);
}

static kiln_status write_one(const char *folder, const char *stem, const char *ending,
                             const void *bytes, size_t length) {
  size_t size = strlen(folder) + strlen(stem) + strlen(ending) + 2;
  char *path = malloc(size);
  if (!path) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
  snprintf(path, size, "%s/%s%s", folder, stem, ending);
  kiln_status status = kiln__file_write(path, bytes, length);
  free(path);
  return status;
}

static kiln_status extract_one(const kiln__args *args, const char *folder,
                               const kiln_pack_kernel *kernel) {
  const kiln__variant_text stem = kiln__variant_stem(&kernel->spec, &kernel->tile);
  kiln_status status = write_one(folder, stem.text, ".cubin", kernel->image, kernel->image_bytes);
  if (status == KILN_OK)
    status = write_one(folder, stem.text, ".record.json", kernel->record, strlen(kernel->record));
  if (status == KILN_OK && kernel->source)
    status = write_one(folder, stem.text, ".cu", kernel->source, kernel->source_bytes);
  return status == KILN_OK ? print_kernel(args, kernel) : status;
}

static kiln_status run_extract(kiln_context *ctx, const kiln__args *args) {
  const char *folder, *prefix = args->num_words > 2 ? args->words[2] : "";
  kiln_pack *pack = NULL;
  int64_t matches = 0;
  kiln_status status = open_pack(ctx, args->words[1], &pack);
  const int64_t count = status == KILN_OK ? info_of(pack).num_kernels : 0;
  for (int64_t i = 0; i < count; i++)
    matches += strncmp(kernel_of(pack, i).kernel_id, prefix, strlen(prefix)) == 0;
  if (status == KILN_OK && prefix[0] && matches != 1)
    status = kiln__fail(KILN_INVALID_ARGUMENT,
                        "%lld kernels of %s have an id that begins with \"%s\"; kiln pack ls lists "
                        "them",
                        (long long)matches, args->words[1], prefix);
  if (status == KILN_OK) status = need_folder(args, &folder);
  for (int64_t i = 0; status == KILN_OK && i < count; i++) {
    const kiln_pack_kernel kernel = kernel_of(pack, i);
    if (strncmp(kernel.kernel_id, prefix, strlen(prefix)) == 0)
      status = extract_one(args, folder, &kernel);
  }
  kiln_pack_destroy(pack);
  return status;
}

/* The file's name up to its first dot, as a C name: "my-kernels.pack" gives my_kernels. */
static void make_name(const char *path, char *name, size_t size) {
  const char *slash = strrchr(path, '/');
  const char *from = slash ? slash + 1 : path;
  size_t length = 0;
  if (!isalpha((unsigned char)*from)) name[length++] = 'k';
  for (; *from && *from != '.' && length + 1 < size; from++)
    name[length++] = isalnum((unsigned char)*from) ? *from : '_';
  name[length] = '\0';
}

/* NULL without memory; *length is the text's. */
static char *array_text(const char *name, const unsigned char *bytes, size_t size, size_t *length) {
  static const char head[] = "/* A kernel pack, written by `kiln pack embed`. */\n"
                             "#include \"%s.h\"\n\n"
                             "_Alignas(4096) const unsigned char %s[%zu] = {";
  const size_t room = sizeof head + 2 * strlen(name) + 32 + 4 * size + size / 24 + 16;
  char *text = malloc(room);
  if (!text) return NULL;
  size_t at = (size_t)snprintf(text, room, head, name, name, size);
  for (size_t i = 0; i < size; i++) {
    if (i % 24 == 0) text[at++] = '\n';
    if (bytes[i] >= 100) text[at++] = (char)('0' + bytes[i] / 100);
    if (bytes[i] >= 10) text[at++] = (char)('0' + bytes[i] / 10 % 10);
    text[at++] = (char)('0' + bytes[i] % 10);
    text[at++] = ',';
  }
  at += (size_t)snprintf(text + at, room - at, "};\n");
  *length = at;
  return text;
}

static kiln_status run_embed(kiln_context *ctx, const kiln__args *args) {
  char name[64], header[1024];
  const char *folder;
  kiln_pack *pack = NULL;
  size_t size = 0, length = 0;
  make_name(args->words[1], name, sizeof name);
  kiln_status status = open_pack(ctx, args->words[1], &pack);
  if (status == KILN_OK) status = need_folder(args, &folder);
  if (status == KILN_OK) {
    const unsigned char *bytes = kiln_pack_bytes(pack, &size);
    char *text = array_text(name, bytes, size, &length);
    snprintf(header, sizeof header,
             "/* A kernel pack, written by `kiln pack embed`:\n"
             " * kiln_pack_open_memory(ctx, %s, sizeof %s, NULL, &pack) opens it. */\n"
             "#pragma once\n#ifdef __cplusplus\nextern \"C\"\n#else\nextern\n#endif\n"
             "const unsigned char %s[%zu];\n",
             name, name, name, size);
    status = text ? write_one(folder, name, ".c", text, length)
                  : kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
    if (status == KILN_OK) status = write_one(folder, name, ".h", header, strlen(header));
    free(text);
  }
  if (status == KILN_OK) status = print_pack(args, pack, args->words[1]);
  kiln_pack_destroy(pack);
  return status;
}

/* ---- the verb ---- */

enum { FLAGS_MAX = 7 };

static const struct command {
  const char *name, *usage;
  const char *flags[FLAGS_MAX]; /* that it takes, of the verb's and besides --json */
  int num_words[2];             /* with its own name: least, most */
  bool selects;
  kiln_status (*run)(kiln_context *ctx, const kiln__args *args);
} commands[] = {
    {"build",
     "build SELECTION|--manifest FILE|--from FILE [-o FILE] [--sources] [--line-info] [--dry-run] "
     "[--max-size N]",
     {"-o", "--manifest", "--from", "--sources", "--line-info", "--dry-run", "--max-size"},
     {1, 1},
     true,
     kiln__pack_build},
    {"ls", "ls FILE", {NULL}, {2, 2}, false, run_ls},
    {"verify", "verify FILE [--key PUB]", {"--key"}, {2, 2}, false, run_verify},
    {"diff", "diff A B", {NULL}, {3, 3}, false, run_diff},
    {"extract", "extract FILE [ID] -o DIR", {"-o"}, {2, 3}, false, run_extract},
    {"sign", "sign FILE --key SEC", {"--key"}, {2, 2}, false, run_sign},
    {"embed", "embed FILE -o DIR", {"-o"}, {2, 2}, false, run_embed},
};

enum { NUM_COMMANDS = sizeof commands / sizeof commands[0] };

static bool takes_flag(const struct command *command, const char *name) {
  if (strcmp(name, "--json") == 0) return true;
  for (int i = 0; i < FLAGS_MAX && command->flags[i]; i++)
    if (strcmp(command->flags[i], name) == 0) return true;
  for (const kiln__flag *flag = flags; flag->name; flag++)
    if (strcmp(flag->name, name) == 0) return false;
  return command->selects;
}

static kiln_status check_line(const struct command *command, const kiln__args *args) {
  if (args->num_words < command->num_words[0] || args->num_words > command->num_words[1])
    return kiln__fail(KILN_INVALID_ARGUMENT, "usage: kiln pack %s", command->usage);
  for (int i = 0; i < args->num_options; i++)
    if (!takes_flag(command, args->options[i].name))
      return kiln__fail(KILN_INVALID_ARGUMENT, "pack %s takes no %s; usage: kiln pack %s",
                        command->name, args->options[i].name, command->usage);
  return KILN_OK;
}

static kiln_status refuse(const char *word) {
  const char *names[NUM_COMMANDS];
  for (int i = 0; i < NUM_COMMANDS; i++) names[i] = commands[i].name;
  const char *near = kiln__nearest(word, names, NUM_COMMANDS);
  if (near)
    return kiln__fail(KILN_INVALID_ARGUMENT, "pack has no command %s; did you mean %s?", word,
                      near);
  return kiln__fail(KILN_INVALID_ARGUMENT, "pack has no command %s; kiln pack --help lists them",
                    word);
}

/* A dry run looks into the cache and compiles nothing. Production runs no profiler: what only one
 * reads is left out of a pack unless it is asked for. */
static kiln_status run_command(const struct command *command, const kiln__args *args) {
  char error[1024] = "";
  kiln_context *ctx = NULL;
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  options.error = error;
  options.error_size = sizeof error;
  options.jit_off = kiln__args_has(args, "--dry-run");
  options.no_line_info = !kiln__args_has(args, "--line-info");
  kiln_status status = check_line(command, args);
  if (status != KILN_OK) return status;
  status = kiln_context_create(KILN_DEVICE_NONE, &options, &ctx);
  if (status != KILN_OK)
    return kiln__fail(status, "%s", error[0] ? error : kiln_status_text(status));
  status = command->run(ctx, args);
  kiln_context_destroy(ctx);
  return status;
}

static kiln_status run(const kiln__args *args) {
  for (int i = 0; i < NUM_COMMANDS; i++)
    if (strcmp(commands[i].name, args->words[0]) == 0) return run_command(&commands[i], args);
  return refuse(args->words[0]);
}

const kiln__verb kiln__verb_pack = {
    .name = "pack",
    .usage = "build SELECTION|--manifest FILE|--from FILE [-o FILE] [--dry-run] [--max-size N] | "
             "ls FILE | verify FILE [--key PUB] | diff A B | extract FILE [ID] -o DIR | sign FILE "
             "--key SEC | embed FILE -o DIR",
    .sentence = "Packs compiled kernels into one file for production.",
    .flags = flags,
    .groups = KILN__TAKES_SELECTION | KILN__OPEN_TO_ALL,
    .min_words = 1,
    .max_words = 3,
    .run = run,
};
