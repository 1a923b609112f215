/* A NumPy file: every element of an accepted tensor is there to be read. */
#include "fuzz.h"

#include <string.h>

#include "cli/tensor_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  kiln__tensor_error error = {""};
  kiln__tensor tensor = {0}, bf16;
  const kiln__tensor_file file = {"input", fuzz_file(data, size), (int64_t)size, &error};
  if (!kiln__npy_recognize(&file)) return 0;
  kiln_status status = kiln__npy_load(&file, &tensor);
  if (status != KILN_OK) {
    demand(error.text[0] != '\0');
    kiln__tensor_destroy(&tensor);
    return 0;
  }
  const int64_t count = kiln__tensor_count(&tensor);
  demand(count >= 0 && (size_t)count * kiln__tensor_dtype_size(tensor.dtype) == tensor.bytes);
  demand(tensor.bytes <= size);
  demand(kiln__tensor_convert(&tensor, KILN__TENSOR_BF16, &bf16) == KILN_OK);
  kiln__tensor_destroy(&bf16);
  kiln__tensor_destroy(&tensor);
  return 0;
}
