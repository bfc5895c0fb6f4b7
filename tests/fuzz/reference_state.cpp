#include "gpt2/checkpoint.h"
#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  expect_value_or_input_error([&] {
    const gpt2::ModelConfig config{4, 5, 6, 1, 2, 4};  // the one of seeds.cpp
    const gpt2::ReferenceState s = gpt2::parse_reference_state(bytes_of(data, size), config, "fuzz");
    if (s.logits.size() != static_cast<size_t>(s.batch_size * s.seq_len * config.vocab_size)) __builtin_trap();
    for (int32_t id : s.inputs)
      if (id < 0 || id >= config.vocab_size) __builtin_trap();
  });
  return 0;
}
