/* NVRTC as a compiler: opened by name at run time, no CUDA header, no include path, no file
 * written. The program's name is fixed and no directory is named, so the same source gives the same
 * bytes from anywhere. compile() runs in any number of threads; the opened compiler is read-only.
 * */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "runtime/compile/nvrtc_find.h"
#include "runtime/compile/nvrtc_log.h"

#define PROGRAM_NAME "/kiln/kernel.cu"
#define MINIMUM      1200 /* 12.0: the first that knows sm_90a; 100 * major + minor */

enum { NVRTC_OUT_OF_MEMORY = 1, NVRTC_BUILTIN_FAILED = 7 };

typedef void *nvrtc_program;

#define NVRTC_MAP(X)                                                                              \
  X(version, nvrtcVersion, (int *major, int *minor))                                              \
  X(create, nvrtcCreateProgram,                                                                   \
    (nvrtc_program * program, const char *text, const char *name, int num_headers,                \
     const char *const *headers, const char *const *header_names))                                \
  X(destroy, nvrtcDestroyProgram, (nvrtc_program * program))                                      \
  X(compile, nvrtcCompileProgram, (nvrtc_program program, int count, const char *const *options)) \
  X(log_size, nvrtcGetProgramLogSize, (nvrtc_program program, size_t * size))                     \
  X(log, nvrtcGetProgramLog, (nvrtc_program program, char *log))                                  \
  X(image_size, nvrtcGetCUBINSize, (nvrtc_program program, size_t * size))                        \
  X(image, nvrtcGetCUBIN, (nvrtc_program program, char *image))                                   \
  X(ptx_size, nvrtcGetPTXSize, (nvrtc_program program, size_t * size))                            \
  X(ptx, nvrtcGetPTX, (nvrtc_program program, char *ptx))

typedef struct nvrtc {
  void *library;
  int version_number; /* 100 * major + minor */
  char build[64];     /* "13.0.88" */
  char path[PATH_MAX];
  char place[PATH_MAX]; /* the name by which it was opened */
  char origin[32];
  const char *options[8]; /* all but the arch */
  int num_options;
  const char *(*error_text)(int result);
#define NVRTC_MEMBER(member, symbol, params) int(*member) params;
  NVRTC_MAP(NVRTC_MEMBER)
#undef NVRTC_MEMBER
} nvrtc;

/* ---- loading ---- */

static const char *resolve(nvrtc *n) {
#define RESOLVE(member, symbol, params)              \
  *(void **)&n->member = dlsym(n->library, #symbol); \
  if (!n->member) return #symbol;
  NVRTC_MAP(RESOLVE)
#undef RESOLVE
  *(void **)&n->error_text = dlsym(n->library, "nvrtcGetErrorString");
  return n->error_text ? NULL : "nvrtcGetErrorString";
}

/* The file that the loader really took. */
static void note_path(nvrtc *n, const kiln__nvrtc_place *place) {
  Dl_info info;
  const char *path = dladdr(*(void **)&n->version, &info) ? info.dli_fname : place->file;
  snprintf(n->path, sizeof n->path, "%s", path);
  snprintf(n->place, sizeof n->place, "%s", place->file);
  snprintf(n->origin, sizeof n->origin, "%s", place->origin);
}

/* Loads one candidate. NULL, or why it cannot be used (in `why`). */
static const char *load(nvrtc *n, const kiln__nvrtc_place *place, char why[256]) {
  int major = 0, minor = 0;
  /* It stays loaded: it keeps memory that unloading would lose, and the next context needs it. */
  n->library = dlopen(place->file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!n->library) return "cannot be loaded";
  const char *missing = resolve(n);
  if (!missing) note_path(n, place);
  if (!missing && n->version(&major, &minor) == 0) n->version_number = 100 * major + minor;
  if (missing)
    snprintf(why, 256, "has no %s", missing);
  else if (n->version_number < MINIMUM)
    snprintf(why, 256, "is version %d.%d, and Kiln needs %d.%d", major, minor, MINIMUM / 100,
             MINIMUM % 100);
  else if (!kiln__nvrtc_has_builtins(n->path))
    snprintf(why, 256, "has no libnvrtc-builtins beside it");
  else
    return NULL;
  dlclose(n->library);
  n->library = NULL;
  return why;
}

typedef struct finder {
  nvrtc *n;
  kiln__text tried; /* what was found and could not be used, one a line */
} finder;

static int try_place(void *user, const kiln__nvrtc_place *place) {
  finder *f = user;
  char why[256];
  int told = strcmp(place->origin, "KILN_NVRTC") == 0;
  const char *problem = place->file ? load(f->n, place, why) : "holds no libnvrtc";
  if (!problem) return 1;
  if (told || (place->file && strcmp(place->origin, "loader") != 0))
    kiln__text_printf(&f->tried, "; %s %s", place->file ? place->file : place->where, problem);
  return 0;
}

static kiln_status find(nvrtc *n, const kiln__env *env, kiln__text *error) {
  finder f = {n, {0}};
  kiln__text_init(&f.tried, 4096);
  int found = kiln__nvrtc_search(env, try_place, &f);
  if (!found)
    kiln__text_printf(error,
                      "no usable NVRTC was found: install the package nvidia-cuda-nvrtc or a CUDA "
                      "toolkit, or set KILN_NVRTC to the library%s",
                      kiln__text_get(&f.tried));
  kiln__text_free(&f.tried);
  return found ? KILN_OK : KILN_NO_COMPILER;
}

/* ---- compiling ---- */

/* The whole log, malloc'd and terminated; NULL without memory. */
static char *get_log(const nvrtc *n, nvrtc_program program) {
  size_t size = 0;
  if (n->log_size(program, &size) != 0) size = 0;
  char *log = calloc(1, size + 1);
  if (log && size && n->log(program, log) != 0) log[0] = '\0';
  return log;
}

static void *get_output(int (*get_size)(nvrtc_program, size_t *), int (*get)(nvrtc_program, char *),
                        nvrtc_program program, size_t *size) {
  *size = 0;
  if (get_size(program, size) != 0 || *size == 0) return NULL;
  char *bytes = calloc(1, *size + 1);
  if (bytes && get(program, bytes) == 0) return bytes;
  free(bytes);
  return NULL;
}

static kiln_status fail(const nvrtc *n, int result, const char *log, kiln__text *error) {
  if (log) kiln__nvrtc_log_errors(log, error);
  if (!error->length)
    kiln__text_printf(error, "NVRTC %s failed: %s", n->build, n->error_text(result));
  if (result == NVRTC_OUT_OF_MEMORY) return KILN_OUT_OF_MEMORY;
  return result == NVRTC_BUILTIN_FAILED ? KILN_NO_COMPILER : KILN_COMPILE_FAILED;
}

/* Image, PTX, resources and notes of a compiled program. */
static kiln_status collect(const nvrtc *n, nvrtc_program program, const char *log,
                           kiln__compiled *out, kiln__text *error) {
  kiln__text notes;
  kiln__text_init(&notes, 64 * 1024);
  if (log) kiln__nvrtc_log_parse(log, out, &notes);
  if (notes.length) notes.data[--notes.length] = '\0'; /* the last line's end */
  if (notes.length) out->notes = kiln__text_take(&notes);
  kiln__text_free(&notes);
  out->image = get_output(n->image_size, n->image, program, &out->image_size);
  out->ptx = get_output(n->ptx_size, n->ptx, program, &out->ptx_length);
  if (out->ptx) out->ptx_length = strlen(out->ptx);
  if (out->image && out->ptx && log) return KILN_OK;
  kiln__text_string(error, "no memory is left for a compiled kernel");
  return KILN_OUT_OF_MEMORY;
}

static kiln_status nvrtc_compile(void *compiler, const char *text, size_t length, const char *arch,
                                 kiln__compiled *out, kiln__text *error) {
  const nvrtc *n = compiler;
  const char *options[9];
  char arch_option[64];
  nvrtc_program program = NULL;
  (void)length; /* the text is terminated */
  snprintf(arch_option, sizeof arch_option, "--gpu-architecture=%s", arch);
  options[0] = arch_option;
  for (int i = 0; i < n->num_options; i++) options[i + 1] = n->options[i];
  memset(out, 0, sizeof *out);
  int result = n->create(&program, text, PROGRAM_NAME, 0, NULL, NULL);
  if (result != 0) return fail(n, result, NULL, error);
  result = n->compile(program, n->num_options + 1, options);
  char *log = get_log(n, program);
  kiln_status status =
      result != 0 ? fail(n, result, log, error) : collect(n, program, log, out, error);
  free(log);
  n->destroy(&program);
  if (status == KILN_OK) return KILN_OK;
  free(out->image);
  free(out->ptx);
  free(out->notes);
  memset(out, 0, sizeof *out);
  return status;
}

/* ---- opening ---- */

/* Compiles an empty program to PTX, whose header names the build, which can change the bytes and
 * which nvrtcVersion does not tell. NVRTC 12.8 and older know no --no-cache: the caller leaves it
 * out. */
static int probe(nvrtc *n, int num_options, const char *const *options) {
  nvrtc_program program = NULL;
  size_t size;
  if (n->create(&program, "", PROGRAM_NAME, 0, NULL, NULL) != 0) return -1;
  int result = n->compile(program, num_options, options);
  char *ptx = result == 0 ? get_output(n->ptx_size, n->ptx, program, &size) : NULL;
  const char *build = ptx ? strstr(ptx, ", V") : NULL;
  if (build) sscanf(build + 3, "%63[0-9.]", n->build);
  free(ptx);
  n->destroy(&program);
  return result;
}

/* Puts line tables and the whole PTX into the image: three quarters of its bytes. */
#define LINE_INFO "-lineinfo"

/* The last one only where the version knows it. */
static const char *const all_options[] = {"--std=c++17", LINE_INFO, "--ptxas-options=--verbose",
                                          "--no-cache"};
enum { NUM_OPTIONS = sizeof all_options / sizeof all_options[0] };

/* Those that are wanted, in order; gives their number. */
static int list_options(int no_line_info, const char *options[NUM_OPTIONS]) {
  int count = 0;
  for (int i = 0; i < NUM_OPTIONS; i++)
    if (!no_line_info || strcmp(all_options[i], LINE_INFO) != 0) options[count++] = all_options[i];
  return count;
}

static void choose_options(nvrtc *n, int no_line_info) {
  const char *const probe_options[] = {"--gpu-architecture=compute_80",
                                       all_options[NUM_OPTIONS - 1]};
  snprintf(n->build, sizeof n->build, "%d.%d", n->version_number / 100, n->version_number % 100);
  n->num_options = list_options(no_line_info, n->options);
  if (probe(n, 2, probe_options) == 0) return;
  n->num_options--;
  probe(n, 1, probe_options);
}

static void nvrtc_close(void *compiler) {
  nvrtc *n = compiler;
  if (n->library) dlclose(n->library);
  free(n);
}

static kiln_status nvrtc_open(const kiln__env *env, int no_line_info, kiln__text *error,
                              void **compiler) {
  nvrtc *n = calloc(1, sizeof *n);
  *compiler = NULL;
  if (!n) {
    kiln__text_string(error, "no memory is left for the compiler");
    return KILN_OUT_OF_MEMORY;
  }
  kiln_status status = find(n, env, error);
  if (status != KILN_OK) {
    nvrtc_close(n);
    return status;
  }
  choose_options(n, no_line_info);
  *compiler = n;
  return KILN_OK;
}

/* ---- without opening ---- */

/* A file that is replaced differs in one of these, whatever its new owner did to its dates. */
static int add_key(const char *file, int no_line_info, kiln__text *key) {
  const char *options[NUM_OPTIONS];
  struct stat status;
  if (stat(file, &status) != 0) return 0;
  const int count = list_options(no_line_info, options);
  for (int i = 0; i < count; i++) kiln__text_printf(key, "%s ", options[i]);
  kiln__text_printf(key, "%s %lld %lld.%09ld %lld.%09ld %llu %llu", file, (long long)status.st_size,
                    (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
                    (long long)status.st_ctim.tv_sec, status.st_ctim.tv_nsec,
                    (unsigned long long)status.st_ino, (unsigned long long)status.st_dev);
  return 1;
}

typedef struct locator {
  int no_line_info;
  kiln__text *key;
} locator;

/* The first place that is not empty: 1 with its key, or -1 for a library on the dynamic loader's
 * own path, of which only the loader knows the file. */
static int locate_place(void *user, const kiln__nvrtc_place *place) {
  const locator *l = user;
  if (!place->file) return 0;
  if (strcmp(place->origin, "loader") != 0)
    return add_key(place->file, l->no_line_info, l->key) ? 1 : -1;
  void *library = dlopen(place->file, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return 0;
  dlclose(library);
  return -1;
}

static int nvrtc_locate(const kiln__env *env, int no_line_info, const void *compiler,
                        kiln__text *key) {
  const nvrtc *n = compiler;
  locator l = {no_line_info, key};
  if (!n) return kiln__nvrtc_search(env, locate_place, &l) == 1;
  return strcmp(n->origin, "loader") != 0 && add_key(n->place, no_line_info, key);
}

/* The first version that knows an arch. */
static const struct {
  const char *arch;
  int version;
} arch_rows[] = {{"sm_80", 1200}, {"sm_86", 1200},  {"sm_89", 1200},
                 {"sm_90", 1200}, {"sm_90a", 1200}, {"sm_120", 1208}};
#define NUM_ARCH_ROWS (sizeof arch_rows / sizeof arch_rows[0])

static kiln_status nvrtc_identify(void *compiler, const char *arch,
                                  kiln__compiler_identity *identity, kiln__text *error) {
  const nvrtc *n = compiler;
  for (size_t i = 0; i < NUM_ARCH_ROWS; i++) {
    if (strcmp(arch_rows[i].arch, arch) != 0) continue;
    if (n->version_number < arch_rows[i].version) {
      kiln__text_printf(error, "NVRTC %s cannot compile for %s: install version %d.%d or newer",
                        n->build, arch, arch_rows[i].version / 100, arch_rows[i].version % 100);
      return KILN_NO_COMPILER;
    }
    snprintf(identity->version, sizeof identity->version, "nvrtc %s", n->build);
    identity->options = n->options;
    identity->num_options = n->num_options;
    return KILN_OK;
  }
  kiln__text_printf(error,
                    "arch is %s: NVRTC compiles for sm_80, sm_86, sm_89, sm_90, sm_90a and "
                    "sm_120",
                    arch);
  return KILN_UNSUPPORTED;
}

/* ---- reporting ---- */

static int report_place(void *user, const kiln__nvrtc_place *place) {
  json_array_append_new(user, json_pack("{s:s, s:s, s:s?}", "origin", place->origin, "where",
                                        place->where, "file", place->file));
  return 0;
}

static void nvrtc_report(const kiln__env *env, kiln__text *json) {
  char sentence[1024];
  kiln__text error;
  void *compiler = NULL;
  json_t *searched = json_array();
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  kiln__nvrtc_search(env, report_place, searched);
  kiln_status status = nvrtc_open(env, 0, &error, &compiler);
  const nvrtc *n = compiler;
  json_t *root =
      json_pack("{s:b, s:s?, s:s?, s:s?, s:s, s:s?, s:o}", "found", status == KILN_OK, "path",
                n ? n->path : NULL, "origin", n ? n->origin : NULL, "version", n ? n->build : NULL,
                "minimum_version", "12.0", "error", n ? NULL : sentence, "searched", searched);
  char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
  kiln__text_string(json, text ? text : "null");
  free(text);
  json_decref(root);
  if (n) nvrtc_close(compiler);
}

const kiln__compiler_ops kiln__nvrtc_ops = {
    .open = nvrtc_open,
    .close = nvrtc_close,
    .locate = nvrtc_locate,
    .identify = nvrtc_identify,
    .compile = nvrtc_compile,
    .report = nvrtc_report,
};
