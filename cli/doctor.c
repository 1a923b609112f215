/* kiln doctor: what was found on this machine, what is missing, what would run.
 *
 * Invariant: a missing driver, GPU or compiler is a finding and not a failure; the exit code is not
 * 0 only where the library itself cannot work. */
#include "device.h"
#include "out.h"
#include "verbs.h"

static const kiln__flag flags[] = {
    {"--json", NULL, "one object"},
    {0},
};

static const char *what_would_run(int device, bool asked) {
  if (device >= 0) return "the kernels of this GPU";
  if (asked && device == KILN_DEVICE_NONE) return "nothing: kernels are generated and compiled";
  return "the emulator: right and slow, for tests and teaching";
}

static kiln_status report(kiln_context *ctx, const kiln__args *args, int device) {
  const char *json = NULL;
  kiln_status status = kiln_context_report(ctx, &json);
  if (status != KILN_OK) return kiln__fail_context(ctx, status);
  json_t *found = kiln__json_parse(json, "the report");
  if (!found) return KILN_INTERNAL;
  json_object_set_new(found, "would_run",
                      json_string(what_would_run(device, kiln__args_has(args, "--device"))));
  if (kiln__args_has(args, "--json")) return kiln__print_json(found);
  kiln__print_text(found);
  json_decref(found);
  return KILN_OK;
}

/* A GPU that cannot be opened is said on stderr, and the rest is still reported. */
static kiln_status run(const kiln__args *args) {
  int device = KILN_DEVICE_NONE;
  kiln_context *ctx = NULL;
  kiln_status status = kiln__device_open(args, KILN__DEVICE_TO_ASK, &device, &ctx);
  if (status != KILN_OK && !kiln__args_has(args, "--device"))
    status = kiln_context_create(KILN_DEVICE_NONE, NULL, &ctx);
  if (status != KILN_OK) return status;
  status = report(ctx, args, device);
  kiln_context_destroy(ctx);
  return status;
}

const kiln__verb kiln__verb_doctor = {
    .name = "doctor",
    .usage = "",
    .sentence = "Says what this machine has and lacks.",
    .flags = flags,
    .groups = KILN__TAKES_TARGET,
    .run = run,
};
