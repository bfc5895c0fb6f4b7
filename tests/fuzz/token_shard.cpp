#include "gpt2/data/token_shards.h"
#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  expect_value_or_input_error([&] {
    const auto tokens = gpt2::parse_token_shard(bytes_of(data, size), "fuzz");
    if (tokens.empty() || gpt2::kLlmcHeaderBytes + tokens.size_bytes() != size) __builtin_trap();
    volatile uint16_t last = tokens.back();  // in bounds, or the sanitizer says so
    (void)last;
  });
  return 0;
}
