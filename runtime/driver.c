/* Opening the CUDA driver: see driver.h. */
#include "runtime/driver.h"

#include <dlfcn.h>
#include <string.h>

#define DRIVER_NAME "libcuda.so.1"

/* The name of the first function that is missing, or NULL. */
static const char *resolve(kiln__driver *driver) {
#define RESOLVE(member, symbol, params)                        \
  *(void **)&driver->member = dlsym(driver->library, #symbol); \
  if (!driver->member) return #symbol;
  KILN__DRIVER_MAP(RESOLVE)
#undef RESOLVE
  *(void **)&driver->function_load = dlsym(driver->library, "cuFuncLoad");
  return NULL;
}

static kiln_status check_version(kiln__driver *driver, kiln__text *error) {
  int (*version)(int *) = NULL;
  *(void **)&version = dlsym(driver->library, "cuDriverGetVersion");
  if (version && version(&driver->installed) == 0 && driver->installed >= KILN__DRIVER_MINIMUM)
    return KILN_OK;
  kiln__text_printf(error, "the CUDA driver is made for CUDA %d.%d and Kiln needs %d.%d: update it",
                    driver->installed / 1000, driver->installed % 1000 / 10,
                    KILN__DRIVER_MINIMUM / 1000, KILN__DRIVER_MINIMUM % 1000 / 10);
  return KILN_NO_DRIVER;
}

kiln_status kiln__driver_open(kiln__driver *driver, kiln__text *error) {
  memset(driver, 0, sizeof *driver);
  /* It stays loaded, because it runs threads of its own. */
  driver->library = dlopen(DRIVER_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!driver->library) {
    kiln__text_string(error, "no CUDA driver (" DRIVER_NAME ") is installed: install one, or use "
                             "the emulator (KILN_DEVICE_EMU)");
    return KILN_NO_DRIVER;
  }
  kiln_status status = check_version(driver, error);
  if (status != KILN_OK) goto fail;
  const char *missing = resolve(driver);
  status = KILN_NO_DRIVER;
  if (missing) {
    kiln__text_printf(error, "the CUDA driver has no %s: update it", missing);
    goto fail;
  }
  kiln__cu_result result = driver->init(0);
  if (result == 0) return KILN_OK;
  status = kiln__driver_fail(driver, result, "the CUDA driver cannot start", error);
  if (status != KILN_NO_DEVICE) status = KILN_NO_DRIVER;
fail:
  kiln__driver_close(driver);
  return status;
}

void kiln__driver_close(kiln__driver *driver) {
  if (driver->library) dlclose(driver->library);
  memset(driver, 0, sizeof *driver);
}

kiln_status kiln__driver_fail(const kiln__driver *driver, kiln__cu_result result, const char *what,
                              kiln__text *error) {
  const char *name = NULL, *text = NULL;
  driver->error_name(result, &name);
  driver->error_text(result, &text);
  kiln__text_printf(error, "%s: %s (%s)", what, text ? text : "unknown error",
                    name ? name : "no name");
  switch (result) {
  case KILN__CU_OUT_OF_MEMORY: return KILN_OUT_OF_MEMORY;
  case KILN__CU_NO_DEVICE:
  case KILN__CU_INVALID_DEVICE: return KILN_NO_DEVICE;
  case KILN__CU_NO_BINARY: return KILN_MISMATCH;
  default: return KILN_DRIVER_FAILED;
  }
}
