#include "gpt2/data/eval_set.h"

#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  expect_value_or_input_error([&] {
    size_t tokens = 0;
    for (const gpt2::EvalExample& e : gpt2::parse_eval_set(bytes_of(data, size), "fuzz")) {
      tokens += e.context.size();
      for (const auto& c : e.completions) tokens += c.size();
      if (e.label < 0 || static_cast<size_t>(e.label) >= e.completions.size()) __builtin_trap();
    }
    if (2 * tokens > size) __builtin_trap();
  });
  return 0;
}
