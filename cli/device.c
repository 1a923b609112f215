/* Opening the context of a verb; device.h states the rule. */
#include "device.h"

#include "out.h"

#include <stdlib.h>
#include <string.h>

kiln_status kiln__device_parse(const char *text, int *device) {
  static const struct {
    const char *text;
    int device;
  } names[] = {{"emu", KILN_DEVICE_EMU}, {"none", KILN_DEVICE_NONE}, {"cuda", 0}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (strcmp(text, names[i].text) != 0) continue;
    *device = names[i].device;
    return KILN_OK;
  }
  if (strncmp(text, "cuda:", 5) == 0 && text[5] >= '0' && text[5] <= '9') {
    char *end = NULL;
    long number = strtol(text + 5, &end, 10);
    if (*end == '\0' && number <= 1023) {
      *device = (int)number;
      return KILN_OK;
    }
  }
  return kiln__fail(KILN_INVALID_ARGUMENT, "--device '%s' is unknown; give emu, cuda:N or none",
                    text);
}

static int choose(const kiln__args *args, kiln__device_choice choice) {
  if (choice == KILN__DEVICE_TO_TRACE) return KILN_DEVICE_EMU;
  if (choice == KILN__DEVICE_TO_ASK && kiln__args_has(args, "--arch")) return KILN_DEVICE_NONE;
  if (kiln_device_count() > 0) return 0;
  return choice == KILN__DEVICE_TO_RUN ? KILN_DEVICE_EMU : KILN_DEVICE_NONE;
}

static kiln_status read_emulator(const kiln__args *args, kiln_context_options *options) {
  int64_t starve = 0;
  kiln_status status = kiln__args_integer(args, "--emu-seed", 0, INT64_MAX, &options->emu_seed);
  if (status == KILN_OK) status = kiln__args_integer(args, "--emu-starve", 0, INT64_MAX, &starve);
  options->emu_starve = (uint64_t)starve;
  options->emu_schedule = kiln__args_get(args, "--emu-schedule");
  return status;
}

/* A flag that would change nothing is a mistake worth a sentence. */
static kiln_status check_emulator(const kiln__args *args, int device) {
  static const char *const flags[] = {"--emu-seed", "--emu-schedule", "--emu-starve"};
  for (int i = 0; device != KILN_DEVICE_EMU && i < 3; i++)
    if (kiln__args_has(args, flags[i]))
      return kiln__fail(KILN_INVALID_ARGUMENT, "%s is for the emulator; add --device emu",
                        flags[i]);
  return KILN_OK;
}

kiln_status kiln__device_open(const kiln__args *args, kiln__device_choice choice, int *device,
                              kiln_context **ctx) {
  char error[1024] = "";
  int number = 0;
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  const char *text = kiln__args_get(args, "--device");
  kiln_status status = KILN_OK;
  *ctx = NULL;
  if (text)
    status = kiln__device_parse(text, &number);
  else
    number = choose(args, choice);
  if (status == KILN_OK) status = check_emulator(args, number);
  if (status == KILN_OK) status = read_emulator(args, &options);
  if (status != KILN_OK) return status;
  options.error = error;
  options.error_size = sizeof error;
  status = kiln_context_create(number, &options, ctx);
  if (status != KILN_OK)
    return kiln__fail(status, "%s", error[0] ? error : kiln_status_text(status));
  if (device) *device = number;
  return KILN_OK;
}
