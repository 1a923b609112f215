/* What the driver says about this machine, for `kiln doctor`. */
#include <stdlib.h>

#include <jansson.h>

#include "runtime/cuda.h"
#include "runtime/driver.h"

static json_t *version_text(int version) {
  return json_sprintf("%d.%d", version / 1000, version % 1000 / 10);
}

static json_t *describe(const kiln__driver *driver, int ordinal) {
  char name[128] = "";
  int device, major = 0, minor = 0, num_sms = 0, shared = 0;
  size_t memory = 0;
  if (driver->device_get(&device, ordinal) != 0) return json_null();
  driver->device_name(name, sizeof name, device);
  driver->device_attribute(&major, KILN__CU_COMPUTE_MAJOR, device);
  driver->device_attribute(&minor, KILN__CU_COMPUTE_MINOR, device);
  driver->device_attribute(&num_sms, KILN__CU_NUM_SMS, device);
  driver->device_attribute(&shared, KILN__CU_SHARED_BYTES_BLOCK, device);
  driver->device_memory(&memory, device);
  return json_pack("{s:i, s:s, s:o, s:s, s:i, s:i, s:I}", "ordinal", ordinal, "name", name,
                   "compute_capability", json_sprintf("%d.%d", major, minor), "arch",
                   kiln__arch_best(major, minor), "num_sms", num_sms, "shared_bytes_block", shared,
                   "memory_bytes", (json_int_t)memory);
}

void kiln__cuda_report(kiln__text *json) {
  char sentence[512];
  kiln__text error;
  kiln__driver driver;
  int count = 0;
  json_t *devices = json_array();
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  kiln_status status = kiln__driver_open(&driver, &error);
  json_t *version = status == KILN_OK ? version_text(driver.installed) : json_null();
  if (status == KILN_OK && driver.device_count(&count) != 0) count = 0;
  for (int i = 0; i < count; i++) json_array_append_new(devices, describe(&driver, i));
  if (status == KILN_OK) kiln__driver_close(&driver);
  json_t *root = json_pack("{s:b, s:o, s:o, s:s?, s:o}", "found", status == KILN_OK, "version",
                           version, "minimum_version", version_text(KILN__DRIVER_MINIMUM), "error",
                           status == KILN_OK ? NULL : sentence, "devices", devices);
  char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
  kiln__text_string(json, text ? text : "null");
  free(text);
  json_decref(root);
}
