/* A compiled kernel, loaded: the shared object and its entries. Used by device.c. */
#ifndef KILN_EMULATOR_MODULE_H
#define KILN_EMULATOR_MODULE_H

#include <kiln/kiln.h>

#include "runtime/emulator/api.h"
#include "runtime/text.h"

typedef struct emu_module {
  void *handle; /* of dlopen */
  int file; /* the image in memory; open as long as the module, so that its name stays its own */
  const kiln_emu_entry *entries;
} emu_module;

kiln_status kiln__module_open(emu_module *module, const void *image, size_t size,
                              kiln__text *error);
void kiln__module_close(emu_module *module);
const kiln_emu_entry *kiln__module_find(const emu_module *module, const char *name);

#endif
