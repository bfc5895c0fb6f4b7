#include "gpt2/data/hugging_face_config.h"

#include <string_view>

#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  expect_value_or_input_error([&] { gpt2::read_hugging_face_config({reinterpret_cast<const char*>(data), size}, "fuzz"); });
  return 0;
}
