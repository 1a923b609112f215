/* A safetensors file: two of its names are asked for. */
#include "fuzz.h"

#include "cli/tensor_file.h"

static void load(const kiln__tensor_file *file, const char *name) {
  kiln__tensor tensor = {0}, bf16;
  kiln_status status = kiln__safetensors_load(file, name, &tensor);
  if (status == KILN_OK) {
    const int64_t count = kiln__tensor_count(&tensor);
    demand(count >= 0 && (size_t)count * kiln__tensor_dtype_size(tensor.dtype) == tensor.bytes);
    demand(tensor.bytes <= (size_t)file->size);
    demand(kiln__tensor_convert(&tensor, KILN__TENSOR_BF16, &bf16) == KILN_OK);
    kiln__tensor_destroy(&bf16);
  } else {
    demand(file->error->text[0] != '\0');
  }
  kiln__tensor_destroy(&tensor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  kiln__tensor_error error = {""};
  const kiln__tensor_file file = {"input", fuzz_file(data, size), (int64_t)size, &error};
  load(&file, "q");
  load(&file, "layer0.k");
  return 0;
}
