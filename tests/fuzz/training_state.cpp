// Random bytes never have the right checksum: each input is read as it is and once more with its checksum
// made right.
#include "gpt2/training_state.h"

#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto parse = [](std::span<const std::byte> bytes) {
    expect_value_or_input_error([&] {
      const gpt2::TrainingState s = gpt2::parse_training_state(bytes, "fuzz");
      if (s.step < 0 || s.m.size() != s.v.size() || 8 * s.m.size() > bytes.size()) __builtin_trap();
    });
  };
  parse(bytes_of(data, size));
  if (size < 8) return 0;
  std::vector<std::byte> sealed(bytes_of(data, size).begin(), bytes_of(data, size).end());
  const uint64_t sum = gpt2::Checksum::of(std::span(sealed).first(size - 8));
  std::memcpy(sealed.data() + size - 8, &sum, 8);
  parse(sealed);
  return 0;
}
