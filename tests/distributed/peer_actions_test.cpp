// Collectives as copies between windows, carried out over host memory: every rank ends with what the collective promises, whichever rank
// goes first between two meets.
#include "gpt2/distributed/peer_actions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "gpt2/distributed/sums.h"

namespace gpt2::distributed {
namespace {

using Kind = PeerAction::Kind;

struct FakeRank {
  std::vector<Bytes> arrays;  // [collective]
  Bytes window;
};

Bytes random_array(const Collective& c, uint32_t seed) {
  std::mt19937 bits(seed);
  Bytes bytes(static_cast<size_t>(c.elements * bytes_of(c.type)));
  for (int64_t i = 0; i < c.elements; ++i) {
    const float value = static_cast<float>(bits() % 20001) / 7.0f - 1400.0f;
    const double wide = static_cast<double>(value);
    uint32_t word;
    std::memcpy(&word, &value, 4);
    const auto half = static_cast<uint16_t>(word >> 16);
    const void* from = c.type == Element::fp64   ? static_cast<const void*>(&wide)
                       : c.type == Element::fp32 ? &value
                                                 : static_cast<const void*>(&half);
    std::memcpy(bytes.data() + i * bytes_of(c.type), from, static_cast<size_t>(bytes_of(c.type)));
  }
  return bytes;
}

void carry_out(const PeerAction& a, const Collective& c, size_t number, int rank, std::vector<FakeRank>& ranks) {
  FakeRank& own = ranks[static_cast<size_t>(rank)];
  unsigned char* at = own.arrays[number].data() + a.data;
  const auto count = static_cast<size_t>(a.bytes);
  const int64_t stride = part_stride(slice_bytes_of(c, static_cast<int>(ranks.size())));
  ASSERT_LE(static_cast<size_t>(a.data + a.bytes), own.arrays[number].size());
  if (a.kind == Kind::push) {
    Bytes& window = ranks[static_cast<size_t>(a.peer)].window;
    ASSERT_LE(static_cast<size_t>(a.window + a.bytes), window.size());
    std::memcpy(window.data() + a.window, at, count);
  } else if (a.kind == Kind::place) {
    std::memcpy(ranks[static_cast<size_t>(a.peer)].arrays[number].data() + a.data, at, count);
  } else if (a.kind == Kind::take) {
    std::memcpy(at, own.window.data() + a.window, count);
  } else if (a.kind == Kind::sum) {
    RankSum sum(c.type, a.bytes / bytes_of(c.type));
    for (int r = 0; r < static_cast<int>(ranks.size()); ++r) sum.add(r == rank ? at : own.window.data() + part_of(r, rank) * stride);
    sum.store(at);
  }
}

// Runs all collectives, one behind the other. Between two meets the ranks run one by one, in `order`: a rank that goes first is as far ahead
// as meets let it be.
void run(const std::vector<Collective>& collectives, const std::vector<int>& order, bool direct, std::vector<FakeRank>& ranks) {
  struct Step {
    PeerAction action;
    size_t number;
  };
  std::vector<std::vector<Step>> queued(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r)
    for (size_t n = 0; n < collectives.size(); ++n)
      for (const PeerAction& a : peer_actions(collectives[n], static_cast<int>(r), static_cast<int>(ranks.size()), direct))
        queued[r].push_back({a, n});
  std::vector<size_t> next(ranks.size(), 0);
  const auto left = [&](int r) { return next[static_cast<size_t>(r)] < queued[static_cast<size_t>(r)].size(); };
  while (std::any_of(order.begin(), order.end(), left)) {
    for (const int r : order)
      for (auto& at = next[static_cast<size_t>(r)]; left(r); ++at) {
        const Step& s = queued[static_cast<size_t>(r)][at];
        if (s.action.kind == Kind::meet) break;
        carry_out(s.action, collectives[s.number], s.number, r, ranks);
      }
    const auto arrived = std::count_if(order.begin(), order.end(), left);
    ASSERT_TRUE(arrived == 0 || arrived == static_cast<int64_t>(order.size())) << "a rank waits for ranks that have nothing left to do";
    for (size_t& at : next) ++at;
  }
}

Bytes expected(const Collective& c, int rank, const std::vector<Bytes>& before) {
  const int ranks = static_cast<int>(before.size());
  if (c.kind == CollectiveKind::all_gather) {
    Bytes all(before[0].size());
    const size_t slice = all.size() / before.size();
    for (size_t r = 0; r < before.size(); ++r) std::memcpy(all.data() + r * slice, before[r].data() + r * slice, slice);
    return all;
  }
  RankSum sum(c.type, c.elements);
  for (const Bytes& one : before) sum.add(one.data());
  Bytes all(before[0].size());
  sum.store(all.data());
  if (c.kind == CollectiveKind::all_reduce) return all;
  const size_t slice = all.size() / static_cast<size_t>(ranks);
  return {all.begin() + static_cast<int64_t>(slice) * rank, all.begin() + static_cast<int64_t>(slice) * (rank + 1)};
}

Bytes got(const Collective& c, int rank, int ranks, const Bytes& array) {
  if (c.kind != CollectiveKind::reduce_scatter) return array;
  const int64_t slice = static_cast<int64_t>(array.size()) / ranks;
  return {array.begin() + slice * rank, array.begin() + slice * (rank + 1)};
}

std::vector<Collective> every_collective(int ranks) {
  std::vector<Collective> all;
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather})
    for (const Element type : {Element::fp32, Element::bf16, Element::fp64})
      for (const int64_t slice : {1, 3, 64}) all.push_back({kind, type, slice * ranks, static_cast<int>(all.size())});
  // Without equal slices: one element, fewer elements than ranks, and a last slice that is shorter.
  for (const Element type : {Element::fp32, Element::bf16, Element::fp64})
    for (const int64_t elements : {int64_t{1}, int64_t{ranks - 1}, int64_t{32 * ranks + 1}})
      all.push_back({CollectiveKind::all_reduce, type, elements, static_cast<int>(all.size())});
  return all;
}

TEST(PeerActions, EveryCollectiveGivesWhatItPromisesInAnyOrderOfTheRanks) {
  for (const int ranks : {2, 3, 4, 8}) {
    const auto collectives = every_collective(ranks);
    int64_t slice = 0;
    for (const Collective& c : collectives) slice = std::max(slice, slice_bytes_of(c, ranks));
    std::vector<int> order(static_cast<size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    for (int turn = 0; turn < 2 * ranks; ++turn, std::rotate(order.begin(), order.begin() + 1, order.end())) {
      const bool direct = turn >= ranks;
      std::vector<FakeRank> fakes(static_cast<size_t>(ranks));
      std::vector<std::vector<Bytes>> before(collectives.size());
      for (size_t r = 0; r < fakes.size(); ++r) {
        fakes[r].window.resize(static_cast<size_t>(window_bytes(ranks, slice)));
        for (size_t n = 0; n < collectives.size(); ++n) {
          fakes[r].arrays.push_back(random_array(collectives[n], static_cast<uint32_t>(100 * n + r)));
          before[n].push_back(fakes[r].arrays.back());
        }
      }
      run(collectives, order, direct, fakes);
      if (HasFatalFailure()) return;
      for (size_t n = 0; n < collectives.size(); ++n)
        for (int r = 0; r < ranks; ++r)
          EXPECT_EQ(got(collectives[n], r, ranks, fakes[static_cast<size_t>(r)].arrays[n]), expected(collectives[n], r, before[n]))
              << ranks << " ranks, rank " << order[0] << " first, " << (direct ? "into arrays" : "into windows") << ", collective " << n
              << ", rank " << r;
    }
  }
}

// What NVLink carries: a rank sends one slice to each of the others and nothing to itself, per half of an all-reduce.
TEST(PeerActions, ARankSendsEveryOtherOneSlice) {
  for (const auto& [kind, rounds] :
       {std::pair{CollectiveKind::reduce_scatter, 1}, std::pair{CollectiveKind::all_gather, 1}, std::pair{CollectiveKind::all_reduce, 2}}) {
    int64_t bytes = 0;
    for (const PeerAction& a : peer_actions({kind, Element::fp32, 4 * 2048, 0}, 1, 4)) {
      EXPECT_TRUE(a.kind != Kind::push || (a.peer >= 0 && a.peer < 4 && a.peer != 1));
      bytes += a.kind == Kind::push ? a.bytes : 0;
    }
    EXPECT_EQ(bytes, rounds * 3 * 2048 * 4);
  }
}

// What a rank did with its array before a gather is over on every rank when the others write into it, and nobody leaves before they have.
TEST(PeerActions, ArraysAreWrittenBetweenTwoMeets) {
  const auto actions = peer_actions({CollectiveKind::all_gather, Element::bf16, 3 * 2048, 0}, 2, 3, true);
  ASSERT_EQ(actions.size(), 4u);
  EXPECT_EQ(actions.front().kind, Kind::meet);
  EXPECT_EQ(actions.back().kind, Kind::meet);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    EXPECT_EQ(actions[i].kind, Kind::place);
    EXPECT_EQ(actions[i].data, 2 * 2048 * 2);
  }
  EXPECT_NE(actions[1].peer, actions[2].peer);
}

TEST(PeerActions, SumsReadWhole16Bytes) {
  for (const int64_t elements : {1, 2, 3, 5, 1000, 4096})
    for (const int ranks : {2, 3, 8}) {
      const Collective c{CollectiveKind::all_reduce, Element::bf16, elements, 0};
      EXPECT_EQ(part_stride(slice_bytes_of(c, ranks)) % 16, 0);
      EXPECT_GE(slice_bytes_of(c, ranks) * ranks, elements * 2);
    }
}

TEST(PeerActions, UnequalSlicesAreRefusedWhereARankOwnsOne) {
  EXPECT_THROW(peer_actions({CollectiveKind::all_gather, Element::fp32, 5, 0}, 0, 2), std::logic_error);
  EXPECT_THROW(peer_actions({CollectiveKind::reduce_scatter, Element::fp32, 5, 0}, 0, 2), std::logic_error);
  EXPECT_THROW(peer_actions({CollectiveKind::all_reduce, Element::fp32, 0, 0}, 0, 2), std::logic_error);
}

}  // namespace
}  // namespace gpt2::distributed
