/* Loads the emulator's shared objects from bytes, through a file that lives in memory alone. */
#include "runtime/emulator/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int write_all(int file, const char *bytes, size_t size) {
  while (size > 0) {
    const ssize_t n = write(file, bytes, size);
    if (n <= 0) return -1;
    bytes += n;
    size -= (size_t)n;
  }
  return 0;
}

/* A linker writes the section headers last: without them dlopen would run off the end. */
static int is_whole(const void *image, size_t size) {
  Elf64_Ehdr header;
  if (size < sizeof header) return 0;
  memcpy(&header, image, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_shoff > size) return 0;
  return (size_t)header.e_shnum * header.e_shentsize <= size - header.e_shoff;
}

static kiln_status open_image(emu_module *module, const void *image, size_t size,
                              kiln__text *error) {
  char path[64];
  if (!is_whole(image, size)) {
    kiln__text_string(error, "the image is no whole shared object for the emulator");
    return KILN_CORRUPT;
  }
  module->file = memfd_create("kiln-kernel", MFD_CLOEXEC);
  if (module->file < 0 || write_all(module->file, image, size) != 0) {
    kiln__text_printf(error, "no memory for the kernel's %zu bytes", size);
    return KILN_OUT_OF_MEMORY;
  }
  /* by process number, not "self": a debugger reads the symbols by the same name */
  snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), module->file);
  module->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (module->handle) return KILN_OK;
  kiln__text_printf(error,
                    "the compiled kernel cannot be loaded (%s): it may be made for another "
                    "machine; clear the cache",
                    dlerror());
  return KILN_CORRUPT;
}

static kiln_status find_exports(emu_module *module, kiln__text *error) {
  const unsigned long *api_size = dlsym(module->handle, "kiln_emu_api_size");
  void *init = dlsym(module->handle, "kiln_emu_init");
  module->entries = dlsym(module->handle, "kiln_emu_entries");
  if (!api_size || !init || !module->entries) {
    kiln__text_string(error, "the image is no kernel for the emulator");
    return KILN_CORRUPT;
  }
  if (*api_size != sizeof kiln__emu_table) {
    kiln__text_string(error, "the kernel was compiled for another version of the emulator: "
                             "compile it again");
    return KILN_MISMATCH;
  }
  void (*set_table)(const kiln_emu_api *);
  memcpy(&set_table, &init, sizeof set_table);
  set_table(&kiln__emu_table);
  return KILN_OK;
}

kiln_status kiln__module_open(emu_module *module, const void *image, size_t size,
                              kiln__text *error) {
  *module = (emu_module){NULL, -1, NULL};
  kiln_status status = open_image(module, image, size, error);
  if (status == KILN_OK) status = find_exports(module, error);
  if (status != KILN_OK) kiln__module_close(module);
  return status;
}

void kiln__module_close(emu_module *module) {
  if (module->handle) dlclose(module->handle);
  if (module->file >= 0) close(module->file);
  *module = (emu_module){NULL, -1, NULL};
}

const kiln_emu_entry *kiln__module_find(const emu_module *module, const char *name) {
  for (const kiln_emu_entry *e = module->entries; e->name; e++)
    if (!strcmp(e->name, name)) return e;
  return NULL;
}
