/* Where NVRTC may lie on this machine, in the order in which it is looked for (docs/compiler.md):
 * KILN_NVRTC alone when it is set; else CUDA_HOME, CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*
 * (newest first), the dynamic loader's own path, Python wheels. Called by nvrtc.c. */
#ifndef KILN_RUNTIME_COMPILE_NVRTC_FIND_H
#define KILN_RUNTIME_COMPILE_NVRTC_FIND_H

#include "runtime/env.h"

typedef struct kiln__nvrtc_place {
  const char *origin; /* "KILN_NVRTC", "CUDA_HOME", …, "loader", "wheel" */
  const char *where;  /* the directory that was looked at, or the name given to the loader */
  const char *file;   /* the library, as dlopen takes it; NULL = none there */
} kiln__nvrtc_place;

/* Calls visit for every place until it returns nonzero; that value, or 0. */
int kiln__nvrtc_search(const kiln__env *env,
                       int (*visit)(void *user, const kiln__nvrtc_place *place), void *user);
/* Whether libnvrtc-builtins lies beside the library, without which it compiles nothing. */
int kiln__nvrtc_has_builtins(const char *file);

#endif
