#include "gpt2/data/safetensors.h"

#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  expect_value_or_input_error([&] {
    size_t bytes = 0;
    for (const auto& [name, tensor] : gpt2::parse_safetensors(bytes_of(data, size), "fuzz")) bytes += tensor.bytes.size();
    if (bytes > size) __builtin_trap();
  });
  return 0;
}
