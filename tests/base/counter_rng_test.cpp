#include "base/counter_rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "base/checksum.h"

namespace gpt2 {
namespace {

TEST(TablelessPermutation, HitsEveryNumberOnce) {
  for (uint64_t n : {1ull, 2ull, 3ull, 5ull, 16ull, 17ull, 255ull, 256ull, 257ull, 1000ull, 4097ull}) {
    for (uint64_t key : {0ull, 1ull, 99ull}) {
      const TablelessPermutation p(n, key);
      std::vector<bool> seen(n, false);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t at = p(i);
        ASSERT_LT(at, n);
        ASSERT_FALSE(seen[at]) << "n=" << n << " i=" << i;
        seen[at] = true;
      }
    }
  }
}

TEST(TablelessPermutation, MixesAndDependsOnTheKey) {
  const TablelessPermutation a(10000, 1), b(10000, 2);
  int fixed = 0, equal = 0, neighbours = 0;
  for (uint64_t i = 0; i + 1 < 10000; ++i) {
    fixed += a(i) == i;
    equal += a(i) == b(i);
    neighbours += a(i + 1) == a(i) + 1;
  }
  // One of each is expected of a random permutation (Poisson).
  EXPECT_LE(fixed, 8);
  EXPECT_LE(equal, 8);
  EXPECT_LE(neighbours, 8);
}

TEST(Checksum, EverySingleBitCountsWhateverThePieces) {
  std::vector<std::byte> data(203);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(mix64(i));
  const uint64_t whole = Checksum::of(data);
  Checksum pieces;
  for (size_t at = 0, n = 1; at < data.size(); at += n, n = n % 37 + 5)
    pieces.update(std::span(data).subspan(at, std::min(n, data.size() - at)));
  EXPECT_EQ(pieces.value(), whole);
  for (size_t bit = 0; bit < 8 * data.size(); ++bit) {
    auto bad = data;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_NE(Checksum::of(bad), whole);
  }
  data.push_back(std::byte{0});
  EXPECT_NE(Checksum::of(data), whole) << "a zero at the end is data, not padding";
}

}  // namespace
}  // namespace gpt2
