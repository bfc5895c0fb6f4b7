#include "gpt2/distributed/communicator.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <stdexcept>

#include "gpt2/distributed/sums.h"

namespace gpt2::distributed {
namespace {

float widen(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }
uint16_t round_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // rounding up could make a NaN infinite
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

template <class Real>
void add_values(std::vector<Real>& sum, const void* part, int64_t elements, bool first) {
  if (first) {
    sum.resize(static_cast<size_t>(elements));
    std::memcpy(sum.data(), part, sum.size() * sizeof(Real));
    return;
  }
  // A part may lie anywhere in a message, so it is copied out and not read in place.
  constexpr size_t kBlock = 1024;
  Real block[kBlock];
  for (size_t at = 0; at < sum.size(); at += kBlock) {
    const size_t n = std::min(kBlock, sum.size() - at);
    std::memcpy(block, static_cast<const char*>(part) + at * sizeof(Real), n * sizeof(Real));
    for (size_t i = 0; i < n; ++i) sum[at + i] += block[i];
  }
}

}  // namespace

void RankSum::add(const void* part) {
  const bool first = empty_;
  empty_ = false;
  if (type_ == Element::fp64) return add_values(double_, part, elements_, first);
  if (type_ == Element::fp32) return add_values(wide_, part, elements_, first);
  if (first) wide_.assign(static_cast<size_t>(elements_), 0.0f);
  for (size_t i = 0; i < wide_.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, static_cast<const char*>(part) + 2 * i, 2);
    wide_[i] = first ? widen(bits) : wide_[i] + widen(bits);
  }
}

void RankSum::store(void* result) const {
  if (type_ == Element::fp64) std::memcpy(result, double_.data(), double_.size() * sizeof(double));
  if (type_ == Element::fp32) std::memcpy(result, wide_.data(), wide_.size() * sizeof(float));
  if (type_ != Element::bf16) return;
  for (size_t i = 0; i < wide_.size(); ++i) {
    const uint16_t bits = round_to_bf16(wide_[i]);
    std::memcpy(static_cast<char*>(result) + 2 * i, &bits, 2);
  }
}

void check_collective(const Collective& c, int ranks) {
  if (c.elements < 1) throw std::logic_error(fmt::format("a collective of {} elements (bucket {})", c.elements, c.bucket));
  if (c.kind != CollectiveKind::all_reduce && c.elements % ranks != 0)
    throw std::logic_error(fmt::format("bucket {}: {} elements have no {} equal slices", c.bucket, c.elements, ranks));
}

void ControlChannel::exchange(const Collective& c, void* data) {
  check_collective(c, world().size);
  const size_t bytes = static_cast<size_t>(c.elements * bytes_of(c.type)), slice = bytes / static_cast<size_t>(world().size);
  unsigned char* mine = static_cast<unsigned char*>(data);
  if (c.kind == CollectiveKind::all_gather) {
    const unsigned char* own = mine + slice * static_cast<size_t>(world().rank);
    const std::vector<Bytes> all = all_gather(Bytes(own, own + slice));
    for (size_t r = 0; r < all.size(); ++r) {
      if (all[r].size() != slice) throw std::logic_error("the ranks do not make the same collective");
      std::memcpy(mine + slice * r, all[r].data(), slice);
    }
    return;
  }
  const std::vector<Bytes> all = all_gather(Bytes(mine, mine + bytes));
  RankSum sum(c.type, c.elements);
  for (const Bytes& part : all) {
    if (part.size() != bytes) throw std::logic_error("the ranks do not make the same collective");
    sum.add(part.data());
  }
  sum.store(data);
}

}  // namespace gpt2::distributed
