#include "profiler/ranks/exposure.h"

#include <algorithm>
#include <cmath>

namespace profiler {
namespace {

struct Cuts {  // by the common clock
  double arrive_ns = 0, first_end_ns = 0;
};

std::vector<Cuts> cuts_of(const std::vector<RankStep>& ranks) {
  std::vector<Cuts> cuts(ranks.empty() ? 0 : ranks.front().collectives.size());
  for (size_t j = 0; j < cuts.size(); ++j)
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Interval& t = ranks[r].collectives[j].time;
      const double begin = static_cast<double>(t.begin_ns) + ranks[r].offset_ns, end = static_cast<double>(t.end_ns) + ranks[r].offset_ns;
      cuts[j].arrive_ns = r ? std::max(cuts[j].arrive_ns, begin) : begin;
      cuts[j].first_end_ns = r ? std::min(cuts[j].first_end_ns, end) : end;
    }
  return cuts;
}

// Clocks that are not quite one may put the last begin behind the first end: then nothing was transferred, and all of it is wait and drain.
void cut_into_parts(const RankStep& rank, const Cuts& cuts, const Interval& whole, std::vector<Interval>& to) {
  const auto local = [&](double ns) { return static_cast<int64_t>(std::llround(ns - rank.offset_ns)); };
  const int64_t arrive = std::clamp(local(cuts.arrive_ns), whole.begin_ns, whole.end_ns);
  const int64_t drain = std::clamp(local(cuts.first_end_ns), arrive, whole.end_ns);
  to.push_back({whole.begin_ns, arrive, true});
  to.push_back({arrive, drain, true});
  to.push_back({drain, whole.end_ns, true});
}

void find_queue(const RankStep& rank, size_t j, CollectiveShare& share) {
  const CollectiveRun& c = rank.collectives[j];
  if (!c.ready_ns) return;
  share.queue_ns = static_cast<double>(std::max<int64_t>(0, c.time.begin_ns - *c.ready_ns));
  if (*share.queue_ns <= 0) return;
  const bool behind_another = std::any_of(rank.collectives.begin(), rank.collectives.end(), [&](const CollectiveRun& other) {
    return &other != &c && other.time.begin_ns < c.time.begin_ns && other.time.end_ns > *c.ready_ns;
  });
  share.queue_for = behind_another ? "collective" : "work";
}

RankExposure exposure_of_rank(const RankStep& rank, const std::vector<Cuts>& cuts) {
  RankExposure e;
  std::vector<Interval> all;
  for (const RankWork& w : rank.work) all.push_back(w.time);
  for (Interval i : rank.other_communication) {
    i.communication = true;
    all.push_back(i);
  }
  const size_t first_part = all.size();
  // Each operation of a collective is cut where the collective is: three pieces, which lie one behind the other.
  for (size_t j = 0; j < rank.collectives.size(); ++j)
    for (const Interval& operation : rank.collectives[j].parts) cut_into_parts(rank, cuts[j], operation, all);
  const Timeline t = make_timeline(all, rank.window);
  e.window_ns = t.window_ns;
  e.exposed_ns = t.exposed_all_ns;
  e.hidden_ns = t.hidden_all_ns;
  e.idle_ns = t.idle_ns;
  e.work_ns = t.busy_ns - t.exposed_all_ns;
  size_t piece = first_part;
  for (size_t j = 0; j < rank.collectives.size(); ++j) {
    const CollectiveRun& c = rank.collectives[j];
    CollectiveShare share;
    share.begin_ns = static_cast<double>(c.time.begin_ns) + rank.offset_ns;
    share.end_ns = static_cast<double>(c.time.end_ns) + rank.offset_ns;
    for (size_t o = 0; o < c.parts.size(); ++o)
      for (CollectivePart* part : {&share.wait, &share.transfer, &share.drain}) {
        part->exposed_ns += t.share_ns[piece];
        share.exposed_ns += t.share_ns[piece];
        share.hidden_ns += t.hidden_ns[piece];
        ++piece;
      }
    const double arrive = std::clamp(cuts[j].arrive_ns, share.begin_ns, share.end_ns);
    const double drain = std::clamp(cuts[j].first_end_ns, arrive, share.end_ns);
    share.wait.time_ns = arrive - share.begin_ns;
    share.transfer.time_ns = drain - arrive;
    share.drain.time_ns = share.end_ns - drain;
    find_queue(rank, j, share);
    e.collectives.push_back(share);
  }
  return e;
}

}  // namespace

std::vector<RankExposure> exposure_of(const std::vector<RankStep>& ranks) {
  const std::vector<Cuts> cuts = cuts_of(ranks);
  std::vector<RankExposure> all;
  for (const RankStep& rank : ranks) all.push_back(exposure_of_rank(rank, cuts));
  return all;
}

}  // namespace profiler
