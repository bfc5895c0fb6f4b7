// Merges up to the first zero byte, then text: the merges are refused, or every text comes back.
#include "gpt2/data/bpe.h"

#include <algorithm>

#include "gpt2/data/pretokenizer.h"
#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(all.find('\0'), size);
  const std::string_view text = all.substr(std::min(cut + 1, size));
  expect_value_or_input_error([&] {
    gpt2::Bpe bpe = gpt2::Bpe::parse(all.substr(0, cut), "fuzz");
    if (!gpt2::unicode_tables_built_in()) return;
    const std::vector<uint16_t> ids = bpe.encode(text);
    if (bpe.decode(ids) != text) __builtin_trap();
    if (bpe.encode(text) != ids) __builtin_trap();  // now from memory
  });
  return 0;
}
