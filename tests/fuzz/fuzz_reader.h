// A reader may answer with a value or with stepscope::InputError; anything else that leaves it ends the
// fuzzer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/errors.h"

template <class Parse>
void expect_value_or_input_error(Parse&& parse) {
  try {
    parse();
  } catch (const stepscope::InputError&) {
  }
}
inline std::span<const std::byte> bytes_of(const uint8_t* data, size_t size) { return {reinterpret_cast<const std::byte*>(data), size}; }
