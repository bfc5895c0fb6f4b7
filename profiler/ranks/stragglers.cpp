#include "profiler/ranks/stragglers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/statistics.h"

namespace profiler {
namespace {

constexpr double kFirst = -std::numeric_limits<double>::infinity();
constexpr double kLowerClock = 0.99;  // a clock 1% below the others is another clock

double begin_of(const RankStep& rank, size_t j) { return static_cast<double>(rank.collectives[j].time.begin_ns) + rank.offset_ns; }

// Median over all ranks but one.
template <class ValueOf>
double others(size_t count, size_t without, ValueOf value_of) {
  std::vector<double> values;
  for (size_t r = 0; r < count; ++r)
    if (r != without) values.push_back(value_of(r));
  return stepscope::median(std::move(values));
}

struct Excess {
  std::string op;
  double ns = 0;
};

// Time that the ops of a rank took more than on the others, per op, over its operations that end in (from, to]; the largest.
Excess excess_of_ops(const std::vector<RankStep>& ranks, size_t rank, double from_ns, double to_ns) {
  using Key = std::pair<Activity, int64_t>;
  std::map<Key, std::vector<double>> elsewhere;
  for (size_t r = 0; r < ranks.size(); ++r)
    for (const RankWork& w : ranks[r].work)
      if (r != rank) elsewhere[{w.activity, w.index}].push_back(static_cast<double>(w.time.end_ns - w.time.begin_ns));
  std::map<std::string, double> per_op;
  for (const RankWork& w : ranks[rank].work) {
    const double end = static_cast<double>(w.time.end_ns) + ranks[rank].offset_ns;
    const auto same = elsewhere.find({w.activity, w.index});
    if (end <= from_ns || end > to_ns || same == elsewhere.end()) continue;
    per_op[w.op] += static_cast<double>(w.time.end_ns - w.time.begin_ns) - stepscope::median(same->second);
  }
  Excess most;
  for (const auto& [op, ns] : per_op)
    if (ns > most.ns) most = {op, ns};
  return most;
}

// Time in [from, to] in which nothing ran on a rank, from its first operation on; by the common clock.
double idle_between(const RankStep& rank, double from_ns, double to_ns) {
  const auto local = [&](double ns) { return static_cast<int64_t>(ns - rank.offset_ns); };
  const Interval window{std::max(rank.window.begin_ns, from_ns == kFirst ? rank.window.begin_ns : local(from_ns)), local(to_ns)};
  if (window.end_ns <= window.begin_ns) return 0;
  std::vector<Interval> busy;
  const auto add = [&](const Interval& i) {
    const Interval cut{std::max(i.begin_ns, window.begin_ns), std::min(i.end_ns, window.end_ns)};
    if (cut.end_ns > cut.begin_ns) busy.push_back(cut);
  };
  for (const RankWork& w : rank.work) add(w.time);
  for (const Interval& other : rank.other_communication) add(other);
  for (const CollectiveRun& c : rank.collectives)
    for (const Interval& part : c.parts) add(part);
  return make_timeline(busy, window).idle_ns;
}

std::string reason(const std::vector<RankStep>& ranks, size_t rank, std::optional<size_t> in_step_at, size_t j) {
  const auto from = [&](size_t r) { return in_step_at ? begin_of(ranks[r], *in_step_at) : kFirst; };
  const Excess op = excess_of_ops(ranks, rank, from(rank), begin_of(ranks[rank], j));
  const auto idle = [&](size_t r) { return idle_between(ranks[r], from(r), begin_of(ranks[r], j)); };
  double idle_excess = idle(rank) - others(ranks.size(), rank, idle);
  if (!in_step_at) {  // it may have begun the step late
    const auto begin = [&](size_t r) { return static_cast<double>(ranks[r].window.begin_ns) + ranks[r].offset_ns; };
    idle_excess += std::max(0.0, begin(rank) - others(ranks.size(), rank, begin));
  }
  if (op.ns <= 0 && idle_excess <= 0) return "";
  if (op.ns < idle_excess) return "host";
  return op.op.empty() ? "work" : op.op;
}

}  // namespace

std::vector<Arrival> arrivals_of(const std::vector<RankStep>& ranks, std::optional<double> uncertainty_ns) {
  std::vector<Arrival> arrivals(ranks.empty() ? 0 : ranks.front().collectives.size());
  if (!uncertainty_ns || ranks.size() < 2) return arrivals;
  std::vector<std::optional<size_t>> in_step_at(ranks.size());  // the last collective at which a rank was not the last
  for (size_t j = 0; j < arrivals.size(); ++j) {
    size_t last = 0;
    for (size_t r = 1; r < ranks.size(); ++r)
      if (begin_of(ranks[r], j) > begin_of(ranks[last], j)) last = r;
    double before = kFirst;
    for (size_t r = 0; r < ranks.size(); ++r)
      if (r != last) before = std::max(before, begin_of(ranks[r], j));
    const double late = begin_of(ranks[last], j) - before;
    const bool known = late > *uncertainty_ns;
    if (known) arrivals[j] = {last, late, reason(ranks, last, in_step_at[last], j)};
    for (size_t r = 0; r < ranks.size(); ++r)
      if (!known || r != last) in_step_at[r] = j;
  }
  return arrivals;
}

std::optional<Slowest> slowest_of(const std::vector<RankStep>& ranks, const std::vector<RankExposure>& exposures,
                                  const std::vector<Arrival>& arrivals, const std::vector<RankCondition>& conditions) {
  std::vector<double> sum(ranks.size(), 0.0);
  std::vector<const Arrival*> latest(ranks.size(), nullptr);
  for (const Arrival& a : arrivals)
    if (a.last) {
      sum[*a.last] += a.late_ns;
      const Arrival*& most = latest[*a.last];
      if (most == nullptr || a.late_ns > most->late_ns) most = &a;
    }
  const auto at = std::max_element(sum.begin(), sum.end());
  if (at == sum.end() || !(*at > 0)) return std::nullopt;
  Slowest s;
  s.rank = static_cast<size_t>(at - sum.begin());
  s.late_ns = latest[s.rank]->late_ns;
  // The reason is that of the collective at which it was latest, so that no row tells another. Clocks and gaps say more about it.
  const std::string& because = latest[s.rank]->because;
  if (because.empty()) return s;

  if (because != "host") {
    const RankCondition& own = conditions[s.rank];
    const bool clocks_known =
        std::all_of(conditions.begin(), conditions.end(), [](const RankCondition& c) { return c.sm_clock_mhz.has_value(); });
    const auto clock = [&](size_t r) { return *conditions[r].sm_clock_mhz; };
    if (clocks_known && clock(s.rank) < kLowerClock * others(ranks.size(), s.rank, clock)) {
      s.why = own.power_capped ? "power" : "clock";
      return s;
    }
    s.why = because == "work" ? because : "op " + because;
    return s;
  }
  s.why = "host";
  const auto excess = [&](auto value_of) { return value_of(s.rank) - others(ranks.size(), s.rank, value_of); };
  const double idle = excess([&](size_t r) { return exposures[r].idle_ns; });
  const double begin = excess([&](size_t r) { return static_cast<double>(ranks[r].window.begin_ns) + ranks[r].offset_ns; });
  if (begin <= idle) return s;
  const bool gaps_known =
      std::all_of(conditions.begin(), conditions.end(), [](const RankCondition& c) { return c.between_steps_ns.has_value(); });
  if (gaps_known && 2 * excess([&](size_t r) { return *conditions[r].between_steps_ns; }) >= begin) s.why = "data";
  return s;
}

}  // namespace profiler
