/* The environment, read once per context and copied, so that a later setenv() changes nothing.
 * Every variable that Kiln knows is a row here; the report lists them, and a KILN_* that is no row
 * is warned about. */
#ifndef KILN_RUNTIME_ENV_H
#define KILN_RUNTIME_ENV_H

#include "runtime/text.h"

#define KILN__ENV_MAP(X)                                                                        \
  X(KILN_CACHE_DIR, "directory of the kernel cache; empty = no cache on disk")                  \
  X(KILN_CACHE_MAX, "size limit of the cache, for example 500M or 2G; default 1G")              \
  X(KILN_PACK_PATH, "kernel packs to look in, separated by colons")                             \
  X(KILN_RECORDS, "tuning records, separated by colons; the first is appended to")              \
  X(KILN_RECORD, "file that the problems of a run are appended to: kiln pack build --from")     \
  X(KILN_JIT, "on or off: off refuses to compile what no pack and no cache holds")              \
  X(KILN_TUNE, "cached (default): plans read tuning records; off; measure: tune what has none") \
  X(KILN_LOG, "error, warning, info or debug: what goes to stderr")                             \
  X(KILN_TEMPLATE_DIR, "directory with lua/ and templates/ in place of the embedded ones")      \
  X(KILN_NVRTC, "the NVRTC library, or its directory")                                          \
  X(KILN_JOBS, "threads that compile, or emulate, at the same time; default one a core")        \
  X(KILN_LIBRARY, "libkiln for the Python binding")                                             \
  X(KILN_EMU_CC, "C compiler of the emulator; default cc")                                      \
  X(CUDA_HOME, "CUDA toolkit, searched for NVRTC")                                              \
  X(CUDA_PATH, "CUDA toolkit, searched for NVRTC after CUDA_HOME")                              \
  X(VIRTUAL_ENV, "Python environment, searched for NVRTC's wheel")                              \
  X(XDG_CACHE_HOME, "parent of the cache directory")                                            \
  X(HOME, "its .cache is the parent of the cache directory when XDG_CACHE_HOME is unset")

typedef enum kiln__env_name {
#define KILN__ENV_ENUM(name, text) KILN__ENV_##name,
  KILN__ENV_MAP(KILN__ENV_ENUM)
#undef KILN__ENV_ENUM
      KILN__ENV_COUNT
} kiln__env_name;

typedef struct kiln__env {
  char *values[KILN__ENV_COUNT]; /* NULL = unset */
  kiln__text unknown;            /* names of unknown KILN_* variables, one a line */
} kiln__env;

int kiln__env_read(kiln__env *env); /* 0, or -1 without memory: then nothing is held */
void kiln__env_free(kiln__env *env);
const char *kiln__env_get(const kiln__env *env, kiln__env_name name); /* NULL = unset or empty */
const char *kiln__env_name_text(kiln__env_name name);
const char *kiln__env_sentence(kiln__env_name name);

#endif
