// A checkpoint that is accepted must have exactly the parameters of its shape.
#include "gpt2/checkpoint.h"

#include "gpt2/tensor_table.h"
#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  expect_value_or_input_error([&] {
    const gpt2::Checkpoint c = gpt2::parse_checkpoint(bytes_of(data, size), "fuzz");
    gpt2::check_config(c.config, "accepted");
    if (static_cast<int64_t>(c.parameters.size()) != gpt2::tensor_layout(c.config).total) __builtin_trap();
  });
  return 0;
}
