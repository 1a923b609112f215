/* What the fuzz targets share: see fuzz.h. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void demand(int condition) {
  if (!condition) abort();
}

static void stay_silent(void *user, kiln_log_level level, const char *sentence) {
  (void)user, (void)level, (void)sentence;
}

kiln_context *fuzz_context(void) {
  static kiln_context *ctx;
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  options.cache_dir = "";
  options.log = stay_silent;
  if (!ctx) demand(kiln_context_create(KILN_DEVICE_NONE, &options, &ctx) == KILN_OK);
  return ctx;
}

int fuzz_file(const uint8_t *data, size_t size) {
  static int fd = -1;
  if (fd < 0) fd = memfd_create("input", MFD_CLOEXEC);
  demand(fd >= 0 && ftruncate(fd, 0) == 0);
  demand(pwrite(fd, data, size, 0) == (ssize_t)size);
  return fd;
}

void *fuzz_copy(const void *data, size_t size) {
  void *copy = malloc(size ? size : 1);
  demand(copy != NULL);
  return size ? memcpy(copy, data, size) : copy;
}
