/* Compiles kernels for the emulator with the host's C compiler: rendered text in, the bytes of a
 * shared object out. No shell, no file of ours: the text goes in through stdin, the object comes
 * out through a file in memory. Reached through runtime/services.h. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/services.h"

/* Without contraction and reassociation an emulated kernel computes the same on every machine. */
static const char *const options[] = {
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Wno-psabi",
    "-fstack-clash-protection", /* a large frame meets the guard page too */
};

enum { NUM_OPTIONS = sizeof options / sizeof *options };

#define MAX_ARGUMENTS (NUM_OPTIONS + 8)
#define MAX_MESSAGES  (64u << 10)

typedef struct emu_compiler {
  char path[1024]; /* looked up in PATH unless it holds a slash */
  char version[96];
} emu_compiler;

/* ---- files in memory and processes ---- */

static int write_all(int file, const char *bytes, size_t size) {
  while (size > 0) {
    const ssize_t n = write(file, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    bytes += n;
    size -= (size_t)n;
  }
  return 0;
}

/* The whole file, terminated; NULL when it cannot be read. The caller frees it. */
static char *read_all(int file, size_t limit, size_t *size) {
  struct stat info;
  if (fstat(file, &info) != 0) return NULL;
  *size = (size_t)info.st_size < limit ? (size_t)info.st_size : limit;
  char *bytes = malloc(*size + 1);
  if (!bytes) return NULL;
  for (size_t done = 0; done < *size;) {
    const ssize_t n = pread(file, bytes + done, *size - done, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      free(bytes);
      return NULL;
    }
    done += (size_t)n;
  }
  bytes[*size] = '\0';
  return bytes;
}

static int memory_file(const char *name) { return memfd_create(name, MFD_CLOEXEC); }

/* Runs a program to its end, its stdin from `input`, its words to `output`. The exit code, or -1
 * when it could not be started. */
static int run(char *const *arguments, int input, int output) {
  posix_spawn_file_actions_t actions;
  pid_t child;
  int status = -1;
  if (posix_spawn_file_actions_init(&actions) != 0) return -1;
  const int failed = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO) ||
                     posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) ||
                     posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO) ||
                     posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return -1;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- finding a compiler ---- */

/* Whether `path` runs; its first line of --version is kept. */
static int try_compiler(emu_compiler *c, const char *path) {
  int found = 0;
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC), output = memory_file("kiln-version");
  char *const arguments[] = {c->path, (char[]){"--version"}, NULL};
  snprintf(c->path, sizeof c->path, "%s", path);
  if (input >= 0 && output >= 0 && run(arguments, input, output) == 0) {
    size_t size;
    char *text = read_all(output, sizeof c->version - 1, &size);
    if (text) snprintf(c->version, sizeof c->version, "%.*s", (int)strcspn(text, "\n"), text);
    found = text && c->version[0];
    free(text);
  }
  if (input >= 0) close(input);
  if (output >= 0) close(output);
  return found;
}

static int find_compiler(emu_compiler *c, const kiln__env *env) {
  static const char *const usual[] = {"cc", "gcc", "clang"};
  const char *wanted = kiln__env_get(env, KILN__ENV_KILN_EMU_CC);
  if (wanted) return try_compiler(c, wanted);
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
    if (try_compiler(c, usual[i])) return 1;
  return 0;
}

static kiln_status compiler_open(const kiln__env *env, int no_line_info, kiln__text *error,
                                 void **compiler) {
  (void)no_line_info; /* its kernels never leave this machine */
  *compiler = NULL;
  emu_compiler *c = calloc(1, sizeof *c);
  if (!c) return KILN_OUT_OF_MEMORY;
  if (find_compiler(c, env)) {
    *compiler = c;
    return KILN_OK;
  }
  const char *wanted = kiln__env_get(env, KILN__ENV_KILN_EMU_CC);
  if (wanted)
    kiln__text_printf(error, "the emulator's C compiler %s (KILN_EMU_CC) does not run", wanted);
  else
    kiln__text_string(error, "the emulator needs a C compiler and finds none of cc, gcc, clang on "
                             "PATH: install one (apt install gcc) or set KILN_EMU_CC");
  free(c);
  return KILN_NO_COMPILER;
}

static void compiler_close(void *compiler) { free(compiler); }

static kiln_status compiler_identify(void *compiler, const char *arch,
                                     kiln__compiler_identity *identity, kiln__text *error) {
  (void)arch, (void)error; /* every architecture is emulated on the same host */
  const emu_compiler *c = compiler;
  snprintf(identity->version, sizeof identity->version, "%s", c->version);
  identity->options = options;
  identity->num_options = NUM_OPTIONS;
  return KILN_OK;
}

/* ---- compiling ---- */

/* The compiler writes the object by the name that its own process has for our file. */
static int run_compiler(emu_compiler *c, int source, int object, int messages) {
  char path[64];
  char *arguments[MAX_ARGUMENTS];
  int n = 0;
  snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), object);
  arguments[n++] = c->path;
  for (int i = 0; i < NUM_OPTIONS; i++) arguments[n++] = (char *)options[i];
  char *const rest[] = {(char[]){"-o"},  path, (char[]){"-x"}, (char[]){"c"}, (char[]){"-"},
                        (char[]){"-lm"}, NULL};
  memcpy(arguments + n, rest, sizeof rest);
  lseek(source, 0, SEEK_SET);
  return run(arguments, source, messages);
}

static kiln_status take_image(int object, kiln__compiled *out, kiln__text *error) {
  out->image = read_all(object, SIZE_MAX, &out->image_size);
  if (out->image && out->image_size > 0) return KILN_OK;
  free(out->image);
  out->image = NULL;
  kiln__text_string(error, "the emulator's C compiler wrote no object");
  return KILN_COMPILE_FAILED;
}

static kiln_status compile_files(emu_compiler *c, int source, int object, int messages,
                                 kiln__compiled *out, kiln__text *error) {
  size_t length = 0;
  const int code = run_compiler(c, source, object, messages);
  char *words = read_all(messages, MAX_MESSAGES, &length);
  if (code != 0) {
    kiln__text_printf(error, "%s failed on the generated source:\n%s", c->path, words ? words : "");
    free(words);
    return KILN_COMPILE_FAILED;
  }
  const kiln_status status = take_image(object, out, error);
  if (status == KILN_OK && length > 0)
    out->notes = words;
  else
    free(words);
  return status;
}

static kiln_status compiler_compile(void *compiler, const char *text, size_t length,
                                    const char *arch, kiln__compiled *out, kiln__text *error) {
  (void)arch;
  kiln_status status = KILN_OUT_OF_MEMORY;
  memset(out, 0, sizeof *out);
  const int source = memory_file("kiln-source"), object = memory_file("kiln-object"),
            messages = memory_file("kiln-messages");
  if (source >= 0 && object >= 0 && messages >= 0 && write_all(source, text, length) == 0)
    status = compile_files(compiler, source, object, messages, out, error);
  else
    kiln__text_string(error, "no memory for the emulator's compiler");
  if (messages >= 0) close(messages);
  if (object >= 0) close(object);
  if (source >= 0) close(source);
  return status;
}

/* A path and a version line hold no quotes or control characters worth keeping. */
static void add_json_string(kiln__text *json, const char *string) {
  kiln__text_string(json, "\"");
  for (; *string; string++)
    if (*string == '"' || *string == '\\')
      kiln__text_printf(json, "\\%c", *string);
    else if ((unsigned char)*string >= ' ')
      kiln__text_append(json, string, 1);
  kiln__text_string(json, "\"");
}

static void compiler_report(const kiln__env *env, kiln__text *json) {
  emu_compiler c;
  memset(&c, 0, sizeof c);
  if (!find_compiler(&c, env)) {
    kiln__text_string(json, "{\"found\": false, \"looked_for\": [\"KILN_EMU_CC\", \"cc\", \"gcc\", "
                            "\"clang\"]}");
    return;
  }
  kiln__text_string(json, "{\"found\": true, \"path\": ");
  add_json_string(json, c.path);
  kiln__text_string(json, ", \"version\": ");
  add_json_string(json, c.version);
  kiln__text_string(json, "}");
}

const kiln__compiler_ops kiln__emulator_compiler_ops = {
    .open = compiler_open,
    .close = compiler_close,
    .identify = compiler_identify,
    .compile = compiler_compile,
    .report = compiler_report,
};
