/* kiln generate: the rendered source of one kernel, or the names of a selection's.
 *
 * Nothing is compiled and no device is needed. With --device emu the text is the emulator's. */
#include "device.h"
#include "file.h"
#include "out.h"
#include "selection.h"
#include "verbs.h"

#include <string.h>

static const kiln__flag flags[] = {
    {"-o", "FILE", "write here instead of stdout"},
    {"--plain", NULL, "leave #line out: for reading"},
    {"--list", NULL, "name the kernels of the selection instead of rendering one"},
    {"--json", NULL, "with --list: one object a line"},
    {0},
};

static kiln_status list(const kiln__args *args, const kiln__selection *selection) {
  kiln_status status = KILN_OK;
  for (int64_t i = 0; status == KILN_OK && i < selection->count; i++) {
    const kiln__variant *variant = &selection->variants[i];
    if (!kiln__args_has(args, "--json")) {
      puts(kiln__variant_describe(&variant->spec).text);
      continue;
    }
    json_t *object = json_object();
    kiln__variant_json(object, &variant->spec, &variant->tile);
    status = kiln__print_json(object);
  }
  return status;
}

static kiln_status render(kiln_context *ctx, const kiln__args *args, const kiln__variant *variant) {
  unsigned plain = kiln__args_has(args, "--plain") ? KILN_GENERATE_PLAIN : 0;
  const char *path = kiln__args_get(args, "-o");
  kiln_source *source = NULL;
  size_t length = 0;
  kiln_status status = kiln_source_generate(ctx, &variant->spec, &variant->tile, plain, &source);
  if (status != KILN_OK) return kiln__fail_context(ctx, status);
  const char *text = kiln_source_text(source, &length);
  if (path && strcmp(path, "-") != 0)
    status = kiln__file_write(path, text, length);
  else
    fwrite(text, 1, length, stdout);
  kiln_source_destroy(source);
  return status;
}

static kiln_status run(const kiln__args *args) {
  int device = 0;
  kiln_context *ctx = NULL;
  kiln__selection selection;
  kiln_status status = kiln__device_open(args, KILN__DEVICE_TO_ASK, &device, &ctx);
  if (status != KILN_OK) return status;
  status = kiln__selection_create(ctx, device, args, KILN__OPEN_IS_DEFAULT, &selection);
  if (status != KILN_OK) goto done;
  if (kiln__args_has(args, "--list"))
    status = list(args, &selection);
  else if (selection.count > 1)
    status = kiln__fail(KILN_INVALID_ARGUMENT,
                        "the selection holds %lld kernels and generate renders one; give single "
                        "values, or use --list, or kiln compile -o DIR",
                        (long long)selection.count);
  else
    status = render(ctx, args, &selection.variants[0]);
  kiln__selection_destroy(&selection);
done:
  kiln_context_destroy(ctx);
  return status;
}

const kiln__verb kiln__verb_generate = {
    .name = "generate",
    .usage = "SELECTION [-o FILE] [--plain] [--list]",
    .sentence = "Renders the CUDA C source of a kernel.",
    .flags = flags,
    .groups = KILN__TAKES_SELECTION | KILN__TAKES_TARGET,
    .run = run,
};
