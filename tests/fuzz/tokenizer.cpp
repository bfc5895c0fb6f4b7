#include "gpt2/data/tokenizer.h"

#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  expect_value_or_input_error([&] {
    const gpt2::Tokenizer t = gpt2::Tokenizer::parse(bytes_of(data, size), "fuzz");
    size_t total = 0;
    for (int32_t id = -1; id <= t.vocab_size(); ++id) total += t.decode(id).size();
    if (total + static_cast<size_t>(t.vocab_size()) + 1024 != size) __builtin_trap();
  });
  return 0;
}
