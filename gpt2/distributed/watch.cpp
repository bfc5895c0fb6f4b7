#include "gpt2/distributed/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/text.h"

namespace gpt2::distributed {

namespace {
constexpr const char* kWithoutAWord = "ended without a word";
}

bool ended_without_a_word(const Failure& failure) { return failure.what.find(kWithoutAWord) != std::string::npos; }

std::string place_of(const Beat& b) {
  switch (b.phase) {
    case Phase::start:
      return "before its first step";
    case Phase::step:
      return fmt::format("in step {}", b.step);
    case Phase::evaluation:
      return fmt::format("in the evaluation after step {}", b.step);
    case Phase::checkpoint:
      return fmt::format("while it saved step {}", b.step);
    case Phase::end:
      break;
  }
  return "after its last step";
}

Watch::Watch(std::vector<std::string> names, std::vector<int> watched, WatchLimits limits, double now_s) : limits_(limits) {
  for (std::string& name : names) {
    Rank r;
    r.name = std::move(name);
    r.heard_s = now_s;
    ranks_.push_back(std::move(r));
  }
  for (int rank : watched) ranks_[static_cast<size_t>(rank)].watched = true;
}

void Watch::beat(int rank, const Beat& beat, double now_s) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  r.beat = beat;
  r.heard_s = now_s;
}
void Watch::closed(int rank) { ranks_[static_cast<size_t>(rank)].closed = true; }
void Watch::goodbye(int rank) { ranks_[static_cast<size_t>(rank)].done = true; }
void Watch::was_away(double now_s) {
  for (Rank& r : ranks_) r.heard_s = now_s;
}

void Watch::finished(int rank, int64_t step, uint64_t loss_bits, uint64_t norm_bits) {
  auto& row = reports_[step];
  row.resize(ranks_.size());
  row[static_cast<size_t>(rank)] = {loss_bits, norm_bits};
  if (std::all_of(row.begin(), row.end(), [](const Bits& b) { return b.loss.has_value(); })) compare(step);
}

void Watch::compare(int64_t step) {
  const auto row = std::move(reports_[step]);
  reports_.erase(step);
  if (different_) return;
  for (const auto& [what, member] : {std::pair{"loss", &Bits::loss}, std::pair{"gradient norm", &Bits::norm}}) {
    // The ranks that differ from most are named; of two, the one that differs from rank 0.
    std::map<uint64_t, std::vector<int>> by_bits;
    for (size_t r = 0; r < row.size(); ++r) by_bits[*(row[r].*member)].push_back(static_cast<int>(r));
    if (by_bits.size() < 2) continue;
    const auto most = std::max_element(by_bits.begin(), by_bits.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second.size(), -a.second.front()) < std::pair(b.second.size(), -b.second.front());
    });
    for (const auto& [bits, ranks] : by_bits) {
      if (bits == most->first) continue;
      different_ = Failure{ranks.front(),
                           fmt::format("step {}: the {} is {:.17g} on {} and {:.17g} on {}; the replicas are no longer the same", step,
                                       what, std::bit_cast<double>(bits), stepscope::named_ranks(ranks), std::bit_cast<double>(most->first),
                                       stepscope::named_ranks(most->second)),
                           1};
      return;
    }
  }
}

std::optional<Failure> Watch::stalled(double now_s) const {
  std::vector<int> waiting;
  const Rank* behind = nullptr;
  int behind_rank = -1;
  bool all_wait = true;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& r = ranks_[i];
    const Beat& b = r.beat;
    const double quiet_s = b.quiet_s + (r.watched ? now_s - r.heard_s : 0);
    const bool late = b.phase == Phase::step && b.limit_s > 0 && quiet_s > b.limit_s;
    if (late && !b.waits && !r.done)
      return Failure{static_cast<int>(i),
                     fmt::format("{} has been {} for {:.0f} s and does not come to the others, who wait", r.name, place_of(b), quiet_s)};
    if (!late) all_wait = false;
    if (behind == nullptr || b.step < behind->beat.step) {
      behind = &r;
      behind_rank = static_cast<int>(i);
    }
  }
  if (!all_wait || behind == nullptr) return std::nullopt;
  const bool same = std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.beat.step == behind->beat.step; });
  if (same)
    return Failure{-1, fmt::format("all ranks have waited in step {} for {:.0f} s: an exchange between them does not end",
                                   behind->beat.step, behind->beat.quiet_s)};
  return Failure{behind_rank, fmt::format("{} is still {} and all ranks have waited for {:.0f} s", behind->name, place_of(behind->beat),
                                          behind->beat.quiet_s)};
}

std::optional<Failure> Watch::judge(double now_s) const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& r = ranks_[i];
    if (r.closed && !r.done)
      return Failure{static_cast<int>(i), fmt::format("{} {}, last seen {}", r.name, kWithoutAWord, place_of(r.beat))};
  }
  if (different_) return different_;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& r = ranks_[i];
    if (r.watched && !r.done && now_s - r.heard_s > limits_.silence_s)
      return Failure{static_cast<int>(i),
                     fmt::format("{} has not been heard for {:.0f} s, last seen {}: it is stopped, or its host is gone", r.name,
                                 now_s - r.heard_s, place_of(r.beat))};
  }
  return stalled(now_s);
}

}  // namespace gpt2::distributed
