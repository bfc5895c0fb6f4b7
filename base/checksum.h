// A 64-bit checksum against damage on disk, not against malice. Every step of a lane is a bijection in both
// the word and the lane, so a change within a single 8-byte word always changes the result; other damage
// escapes with probability 2^-64. Four lanes, so that the multiplications of one need not wait for another's:
// a training state has 8 bytes per parameter.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/counter_rng.h"

namespace gpt2 {

class Checksum {
 public:
  void update(std::span<const std::byte> bytes) {
    length_ += bytes.size();
    while (!bytes.empty()) {
      if (filled_ == 0 && bytes.size() >= kBlock) {
        const size_t whole = bytes.size() / kBlock * kBlock;
        absorb(bytes.data(), whole);
        bytes = bytes.subspan(whole);
        continue;
      }
      const size_t n = std::min(kBlock - filled_, bytes.size());
      std::memcpy(block_.data() + filled_, bytes.data(), n);
      filled_ += n;
      bytes = bytes.subspan(n);
      if (filled_ == kBlock) {
        absorb(block_.data(), kBlock);
        filled_ = 0;
      }
    }
  }
  uint64_t value() const {
    Checksum last = *this;
    if (filled_ > 0) {  // the length below tells zero padding from zeros in the data
      std::memset(last.block_.data() + filled_, 0, kBlock - filled_);
      last.absorb(last.block_.data(), kBlock);
    }
    uint64_t h = mix64(length_);
    for (uint64_t lane : last.lanes_) h = mix64(h ^ lane);
    return h;
  }
  static uint64_t of(std::span<const std::byte> bytes) {
    Checksum c;
    c.update(bytes);
    return c.value();
  }

 private:
  static constexpr size_t kBlock = 32;
  void absorb(const std::byte* from, size_t bytes) {
    std::array<uint64_t, 4> lanes = lanes_;  // a byte pointer may alias members, never this: it stays in registers
    for (const std::byte* end = from + bytes; from != end; from += kBlock) {
      std::array<uint64_t, 4> words;
      std::memcpy(words.data(), from, kBlock);
      for (size_t i = 0; i < 4; ++i) lanes[i] = std::rotl(lanes[i] ^ words[i], 29) * 0x9e3779b97f4a7c15ull;  // odd factor: invertible
    }
    lanes_ = lanes;
  }
  std::array<uint64_t, 4> lanes_{1, 2, 3, 4};
  std::array<std::byte, kBlock> block_{};
  size_t filled_ = 0;
  uint64_t length_ = 0;
};

}  // namespace gpt2
