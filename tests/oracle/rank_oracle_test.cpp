// Documents of several ranks against the definitions of docs/metrics.md ("Several ranks"), over recordings made at random.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "profiler/report/rank_views.h"
#include "tests/oracle/random_run.h"
#include "tests/oracle/step_oracle.h"

namespace {

using namespace profiler;
using oracle::expect_near;
using oracle::Maybe;
using oracle::median;
using oracle::Operation;

// One collective on one rank, by that rank's clock.
struct Collective {
  std::string words, kernel, op;  // "all_reduce fp32 1000 bucket 3"
  std::vector<oracle::Stretch> parts;
  Maybe ready;  // end of the work launched directly before it
  std::string during;
  double begin() const {
    double first = INFINITY;
    for (const auto& p : parts) first = std::min(first, p.begin_ns);
    return first;
  }
  double end() const {
    double last = 0;
    for (const auto& p : parts) last = std::max(last, p.end_ns);
    return last;
  }
};

struct Rank {
  const Recording* recording = nullptr;
  oracle::Step step;
  ProfileDocument document;  // of this rank by itself
  std::vector<Collective> collectives;
  double offset = 0;
  double begin(size_t j) const { return collectives[j].begin() + offset; }
  double end(size_t j) const { return collectives[j].end() + offset; }
};

double start_of(const Operation& o) { return static_cast<double>(o.record->start_ns); }
double end_of(const Operation& o) { return static_cast<double>(o.record->end_ns); }
std::string words_of(const Operation& o) { return oracle::collective_words(o.record->path); }
// Between ranks: NCCL's kernels, copies, and the kernel in which ranks meet before copies. Sums and casts carry nothing.
bool carries(const Operation& o) {
  return !words_of(o).empty() && (o.record->activity == Activity::copy || o.record->name.starts_with("nccl") ||
                                  o.record->name.starts_with("wait_for_ranks_kernel"));
}

std::vector<Collective> collectives_of(const oracle::Step& step) {
  std::vector<const Operation*> launched;
  for (const Operation& o : step.operations) launched.push_back(&o);
  std::sort(launched.begin(), launched.end(),
            [](const Operation* a, const Operation* b) { return a->record->launch_ns < b->record->launch_ns; });
  std::vector<Collective> list;
  const Operation* work = nullptr;
  for (const Operation* o : launched) {
    if (!o->communication) work = o;
    if (!carries(*o)) continue;
    if (list.empty() || list.back().words != words_of(*o)) {
      list.push_back({words_of(*o), o->record->name, o->place->op, {}, {}, ""});
      if (work) {
        list.back().ready = end_of(*work);
        list.back().during = work->place ? work->place->pass : "";
      }
    }
    list.back().parts.push_back({start_of(*o), end_of(*o), true});
  }
  return list;
}

// at_most[r][s]: how far the clock of s may be ahead of that of r, since no rank ends a collective before every rank has begun it.
std::vector<std::vector<double>> bounds(const std::vector<Rank>& ranks) {
  const size_t n = ranks.size();
  std::vector<std::vector<double>> at_most(n, std::vector<double>(n, INFINITY));
  for (size_t r = 0; r < n; ++r)
    for (size_t s = 0; s < n; ++s)
      for (size_t j = 0; j < ranks[r].collectives.size(); ++j)
        at_most[r][s] = r == s ? 0 : std::min(at_most[r][s], ranks[r].collectives[j].end() - ranks[s].collectives[j].begin());
  for (size_t again = 0; again < n; ++again)
    for (size_t r = 0; r < n; ++r)
      for (size_t s = 0; s < n; ++s)
        for (size_t by = 0; by < n; ++by) at_most[r][s] = std::min(at_most[r][s], at_most[r][by] + at_most[by][s]);
  return at_most;
}

struct Share {
  double exposed = 0, hidden = 0, wait = 0, transfer = 0, drain = 0;
  double exposed_wait = 0, exposed_transfer = 0, exposed_drain = 0;
};
struct Exposure {
  oracle::Swept swept;
  std::vector<Share> shares;
};

// The rank's step with each part of a collective cut at the last begin and the first end of any rank.
Exposure exposure_of(const std::vector<Rank>& ranks, const Rank& rank) {
  std::vector<oracle::Stretch> stretches;
  std::vector<std::pair<size_t, int>> piece_of;  // collective and part of it: 0 wait, 1 transfer, 2 drain
  const auto add = [&](double begin, double end, bool communication, size_t j, int part) {
    stretches.push_back({begin, end, communication});
    piece_of.emplace_back(j, part);
  };
  constexpr size_t kNone = SIZE_MAX;
  double first = INFINITY, last = -INFINITY;
  for (const Operation& o : rank.step.operations) {
    first = std::min(first, start_of(o) + rank.offset);
    last = std::max(last, end_of(o) + rank.offset);
    if (!carries(o)) add(start_of(o) + rank.offset, end_of(o) + rank.offset, o.communication, kNone, 0);
  }
  Exposure e;
  e.shares.resize(rank.collectives.size());
  for (size_t j = 0; j < rank.collectives.size(); ++j) {
    double arrive = -INFINITY, first_end = INFINITY;
    for (const Rank& r : ranks) arrive = std::max(arrive, r.begin(j)), first_end = std::min(first_end, r.end(j));
    const auto cut = [&](double begin, double end, auto&& piece) {
      const double a = std::min(std::max(arrive, begin), end), b = std::min(std::max(first_end, a), end);
      piece(begin, a, 0), piece(a, b, 1), piece(b, end, 2);
    };
    for (const oracle::Stretch& p : rank.collectives[j].parts)
      cut(p.begin_ns + rank.offset, p.end_ns + rank.offset, [&](double from, double to, int part) { add(from, to, true, j, part); });
    Share& s = e.shares[j];
    cut(rank.begin(j), rank.end(j), [&](double from, double to, int part) {
      (part == 0 ? s.wait : part == 1 ? s.transfer : s.drain) = to - from;
    });
  }
  // A piece without length stands at a moment and would share in nothing.
  std::vector<oracle::Stretch> longer;
  std::vector<std::pair<size_t, int>> of_longer;
  for (size_t i = 0; i < stretches.size(); ++i)
    if (stretches[i].end_ns > stretches[i].begin_ns) longer.push_back(stretches[i]), of_longer.push_back(piece_of[i]);
  e.swept = oracle::sweep(longer, first, last);
  for (size_t i = 0; i < longer.size(); ++i) {
    if (of_longer[i].first == kNone) continue;
    Share& s = e.shares[of_longer[i].first];
    const int part = of_longer[i].second;
    s.exposed += e.swept.share_ns[i];
    s.hidden += e.swept.hidden_ns[i];
    (part == 0 ? s.exposed_wait : part == 1 ? s.exposed_transfer : s.exposed_drain) += e.swept.share_ns[i];
  }
  return e;
}

struct Late {
  std::optional<size_t> rank;
  double ns = 0;
  std::string because;
};

double median_of_others(size_t count, size_t without, const std::function<double(size_t)>& value) {
  std::vector<double> list;
  for (size_t r = 0; r < count; ++r)
    if (r != without) list.push_back(value(r));
  return *median(list);
}

// Time in [from, to] in which nothing at all ran.
double idle_between(const Rank& rank, double from, double to) {
  std::vector<oracle::Stretch> list;
  for (const Operation& o : rank.step.operations) {
    const double begin = std::max(from, start_of(o) + rank.offset), end = std::min(to, end_of(o) + rank.offset);
    if (end > begin) list.push_back({begin, end, false});
  }
  return to > from ? oracle::sweep(list, from, to).idle_ns : 0;
}

std::string why_late(const std::vector<Rank>& ranks, size_t late, std::optional<size_t> in_step, size_t j) {
  const auto from = [&](size_t r) { return in_step ? ranks[r].begin(*in_step) : ranks[r].step.begin_ns + ranks[r].offset; };
  std::map<std::string, double> excess;
  for (const Operation& o : ranks[late].step.operations) {
    const double end = end_of(o) + ranks[late].offset;
    if (o.communication || (in_step && end <= from(late)) || end > ranks[late].begin(j)) continue;
    const auto same = [&](size_t r) {
      for (const Operation& x : ranks[r].step.operations)
        if (x.record->activity == o.record->activity && x.record->index == o.record->index) return x.own_ns;
      return 0.0;
    };
    excess[o.place ? o.place->op : ""] += o.own_ns - median_of_others(ranks.size(), late, same);
  }
  std::string op;
  double most = 0;
  for (const auto& [name, ns] : excess)
    if (ns > most) most = ns, op = name;
  const auto idle = [&](size_t r) { return idle_between(ranks[r], from(r), ranks[r].begin(j)); };
  double idle_more = idle(late) - median_of_others(ranks.size(), late, idle);
  if (!in_step) idle_more += std::max(0.0, from(late) - median_of_others(ranks.size(), late, from));
  if (most <= 0 && idle_more <= 0) return "";
  return idle_more > most ? "host" : op.empty() ? "work" : op;
}

std::vector<Late> arrivals_of(const std::vector<Rank>& ranks, double uncertainty) {
  std::vector<Late> list;
  std::vector<std::optional<size_t>> in_step(ranks.size());
  for (size_t j = 0; j < ranks[0].collectives.size(); ++j) {
    std::vector<std::pair<double, size_t>> order;
    for (size_t r = 0; r < ranks.size(); ++r) order.emplace_back(ranks[r].begin(j), r);
    std::sort(order.rbegin(), order.rend());
    Late l;
    const double behind = order[0].first - order[1].first;
    if (behind > uncertainty) l = {order[0].second, behind, why_late(ranks, order[0].second, in_step[order[0].second], j)};
    for (size_t r = 0; r < ranks.size(); ++r)
      if (l.rank != r) in_step[r] = j;
    list.push_back(l);
  }
  return list;
}

// Bytes over the busiest link for each byte of the array, as nccl-tests has it.
double factor_of(const std::string& words, size_t ranks) {
  const auto n = static_cast<double>(ranks);
  return (words.starts_with("all_reduce") ? 2 : 1) * (n - 1) / n;
}
double bytes_of(const std::string& words) {
  const size_t type = words.find(' ') + 1, elements = words.find(' ', type) + 1;
  return std::stod(words.substr(elements)) * (words.substr(type, 4) == "bf16" ? 2 : 4);
}

// Time of a collective alone: along the logarithms between two sizes that were measured, by the bandwidth of the largest above it, and as long
// as the smallest below that.
Maybe alone_ns(const LinkCeilings& links, const std::string& communicator, const std::string& kind, const std::string& type, size_t ranks,
               double bytes) {
  const LinkPoint *below = nullptr, *above = nullptr;
  for (const LinkPoint& p : links.points) {
    if (p.communicator != communicator || p.kind != kind || p.type != type || p.ranks != static_cast<int64_t>(ranks)) continue;
    if (static_cast<double>(p.bytes) <= bytes && (!below || p.bytes > below->bytes)) below = &p;
    if (static_cast<double>(p.bytes) > bytes && (!above || p.bytes < above->bytes)) above = &p;
  }
  if (!below) return above ? Maybe(above->time_ns) : Maybe();
  const auto size = static_cast<double>(below->bytes);
  if (!above) return below->time_ns * bytes / size;
  const double share = std::log(bytes / size) / std::log(static_cast<double>(above->bytes) / size);
  return below->time_ns * std::pow(above->time_ns / below->time_ns, share);
}

class RankOracle {
 public:
  RankOracle(const oracle::Run& run, const ProfileDocument& d) : run_(run), d_(d) {
    for (const RankRecording& r : run.ranks) {
      Rank& rank = ranks_.emplace_back();
      rank.recording = &r.recording;
      rank.step = oracle::shown_step(r.recording, run.run, run.ceilings);
      rank.document = build_profile(r.recording, run.run, run.ceilings, run.options);
      rank.collectives = collectives_of(rank.step);
    }
    main_ = median_rank();
  }

  void expect_all() {
    oracle::expect_step(*ranks_[main_].recording, run_.run, run_.ceilings, d_);
    oracle::expect_surroundings(*ranks_[main_].recording, run_.run, run_.options, d_);
    expect_clocks();
    for (const Rank& r : ranks_) exposures_.push_back(exposure_of(ranks_, r));
    arrivals_ = arrivals_of(ranks_, uncertainty_);
    expect_world();
    expect_ranks();
    expect_collectives();
    expect_pass_cells();
    expect_lanes();
  }

 private:
  // The lower of the two in the middle.
  size_t median_rank() const {
    std::vector<std::pair<double, size_t>> order;
    for (size_t r = 0; r < ranks_.size(); ++r) order.emplace_back(ranks_[r].step.time_ns, r);
    std::sort(order.begin(), order.end());
    return order[(order.size() + 1) / 2 - 1].second;
  }

  // A cut at half a nanosecond goes to a whole one in each piece of a collective.
  void near(const std::string& what, const Maybe& expected, const Maybe& found) const {
    ASSERT_EQ(expected.has_value(), found.has_value()) << what;
    if (!expected) return;
    EXPECT_NEAR(*expected, *found, one_clock_ ? 1e-6 + 1e-9 * std::fabs(*expected) : 10 + 1e-6 * std::fabs(*expected)) << what;
  }

  void expect_clocks() {
    const auto at_most = bounds(ranks_);
    one_clock_ = ranks_[0].recording->rank->boot_id == ranks_.back().recording->rank->boot_id;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].offset = one_clock_ ? 0 : (at_most[0][r] - at_most[r][0]) / 2;
      expect_near("clock_offset_ns", ranks_[r].offset, d_.ranks[r].clock_offset_ns);
      expect_near("clock_uncertainty_ns", std::max(at_most[0][r] - ranks_[r].offset, ranks_[r].offset + at_most[r][0]),
                  d_.ranks[r].clock_uncertainty_ns);
    }
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (size_t s = 0; s < ranks_.size(); ++s)
        if (r != s) uncertainty_ = std::max(uncertainty_, at_most[r][s] - (ranks_[s].offset - ranks_[r].offset));
    expect_near("world.clock_uncertainty_ns", uncertainty_, d_.world.clock_uncertainty_ns);
    EXPECT_EQ(d_.world.clock, one_clock_ ? "shared" : "causality");
  }

  void expect_world() const {
    const WorldSection& w = d_.world;
    const Exposure& e = exposures_[main_];
    const auto n = static_cast<int64_t>(ranks_.size());
    EXPECT_EQ(w.size, n);
    EXPECT_EQ(w.main_rank, static_cast<int64_t>(main_));
    EXPECT_EQ(w.collectives, static_cast<int64_t>(e.shares.size()));
    near("world.communication_ns", e.swept.exposed_ns + e.swept.hidden_all_ns, w.communication_ns);
    near("world.exposed_ns", e.swept.exposed_ns, w.exposed_ns);
    near("world.hidden_ns", e.swept.hidden_all_ns, w.hidden_ns);
    double wait = 0, transfer = 0, drain = 0;
    for (const Share& s : e.shares) wait += s.exposed_wait, transfer += s.exposed_transfer, drain += s.exposed_drain;
    near("world.exposed_wait_ns", wait, w.exposed_wait_ns);
    near("world.exposed_transfer_ns", transfer, w.exposed_transfer_ns);
    near("world.exposed_drain_ns", drain, w.exposed_drain_ns);
    double bytes = 0, moved = 0, transfers = 0, times = 0;
    Maybe alone = 0;
    for (size_t j = 0; j < e.shares.size(); ++j) {
      const std::string& words = ranks_[0].collectives[j].words;
      bytes += bytes_of(words);
      moved += bytes_of(words) * factor_of(words, ranks_.size());
      transfers += over_ranks([&](size_t r) { return exposures_[r].shares[j].transfer; });
      times += over_ranks([&](size_t r) { return ranks_[r].end(j) - ranks_[r].begin(j); });
      const bool resolved = over_ranks([&](size_t r) { return exposures_[r].shares[j].transfer; }) > uncertainty_;
      const Maybe one = resolved ? alone_of(ranks_[0].collectives[j]) : Maybe();
      alone = alone && one ? Maybe(*alone + *one) : Maybe();
    }
    near("world.bytes", bytes, w.bytes);
    near("world.paid_bytes_per_s", moved / times * 1e9, w.paid_bytes_per_s);
    if (std::fabs(transfers - uncertainty_ * static_cast<double>(e.shares.size())) > 10)
      near("world.bus_bytes_per_s",
           transfers > uncertainty_ * static_cast<double>(e.shares.size()) ? Maybe(moved / transfers * 1e9) : Maybe(), w.bus_bytes_per_s);
    // Where each has a ceiling their sum is long enough too.
    near("world.of_link_ceiling_pct", alone ? Maybe(*alone / transfers * 100) : Maybe(), w.of_link_ceiling_pct);
    if (run_.run) near("world.tokens_per_s", static_cast<double>(n) * *d_.timing.tokens_per_s, w.tokens_per_s);
  }

  void expect_ranks() const {
    ASSERT_EQ(d_.ranks.size(), ranks_.size());
    const bool anybody = std::any_of(arrivals_.begin(), arrivals_.end(), [](const Late& l) { return l.rank.has_value(); });
    std::vector<double> late(ranks_.size(), 0), latest(ranks_.size(), 0);
    size_t slowest = 0;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const RankRow& row = d_.ranks[r];
      const std::string what = "rank " + std::to_string(r) + " ";
      const Exposure& e = exposures_[r];
      near(what + "device_ns", e.swept.window_ns, row.device_ns);
      near(what + "work_ns", e.swept.work_ns, row.work_ns);
      near(what + "exposed_ns", e.swept.exposed_ns, row.exposed_ns);
      near(what + "hidden_ns", e.swept.hidden_all_ns, row.hidden_ns);
      near(what + "idle_ns", e.swept.idle_ns, row.idle_ns);
      double wait = 0;
      for (const Share& s : e.shares) wait += s.exposed_wait;
      near(what + "exposed_wait_ns", wait, row.exposed_wait_ns);
      int64_t times = 0;
      for (const Late& l : arrivals_)
        if (l.rank == r) late[r] += l.ns, latest[r] = std::max(latest[r], l.ns), ++times;
      near(what + "late_ns", anybody ? Maybe(late[r]) : Maybe(), row.late_ns);
      EXPECT_EQ(row.last_arrivals.value_or(0), times) << what;
      if (late[r] > late[slowest]) slowest = r;
      const ProfileDocument& own = ranks_[r].document;
      near(what + "sm_clock_mhz", own.environment.sm_clock_mhz_median, row.sm_clock_mhz);
      near(what + "power_w", own.environment.power_w_median, row.power_w);
      expect_host_times(what, *ranks_[r].recording, row);
      for (const PassRow& p : own.passes) {
        const auto at = std::find_if(d_.rank_passes.begin(), d_.rank_passes.end(),
                                     [&](const RankPassRow& x) { return x.rank == static_cast<int64_t>(r) && x.pass == p.name; });
        ASSERT_NE(at, d_.rank_passes.end()) << what << p.name;
        near(what + p.name, p.time_ns, at->time_ns);
        near(what + p.name + " hidden", p.name == "communication" ? e.swept.hidden_all_ns : 0, at->hidden_ns);
      }
    }
    ASSERT_EQ(d_.world.slowest_rank.has_value(), anybody);
    if (!anybody) return;
    EXPECT_EQ(d_.world.slowest_rank, static_cast<int64_t>(slowest));
    near("world.slowest_late_ns", latest[slowest], d_.world.slowest_late_ns);
    EXPECT_EQ(d_.world.slowest_why.value_or(""), why_slowest(slowest));
  }

  // Of the collective at which it was latest. A lower clock explains ops that take longer, late data a step that begins late.
  std::string why_slowest(size_t rank) const {
    const Late* latest = nullptr;
    for (const Late& l : arrivals_)
      if (l.rank == rank && (!latest || l.ns > latest->ns)) latest = &l;
    const auto more = [&](const std::function<double(size_t)>& of) { return of(rank) - median_of_others(ranks_.size(), rank, of); };
    const auto all = [&](Number RankRow::*member) {
      return std::all_of(d_.ranks.begin(), d_.ranks.end(), [&](const RankRow& r) { return (r.*member).has_value(); });
    };
    if (latest->because == "host") {
      const double idle = more([&](size_t r) { return exposures_[r].swept.idle_ns; });
      const double begin = more([&](size_t r) { return ranks_[r].step.begin_ns + ranks_[r].offset; });
      const bool data =
          begin > idle && all(&RankRow::between_steps_ns) && 2 * more([&](size_t r) { return *d_.ranks[r].between_steps_ns; }) >= begin;
      return data ? "data" : "host";
    }
    if (latest->because.empty()) return "";
    if (all(&RankRow::sm_clock_mhz)) {
      const auto clock = [&](size_t r) { return *d_.ranks[r].sm_clock_mhz; };
      const std::vector<std::string>& reasons = d_.ranks[rank].throttle_reasons;
      if (clock(rank) < 0.99 * median_of_others(ranks_.size(), rank, clock))
        return std::find(reasons.begin(), reasons.end(), "power_cap") != reasons.end() ? "power" : "clock";
    }
    return latest->because == "work" ? "work" : "op " + latest->because;
  }

  static void expect_host_times(const std::string& what, const Recording& r, const RankRow& row) {
    std::vector<double> pitches, between;
    for (const StepRecord& s : r.steps)
      for (const StepRecord& next : r.steps) {
        if (s.phase != Phase::timed || next.step != s.step + 1) continue;
        pitches.push_back(static_cast<double>(next.host_begin_ns - s.host_begin_ns));
        if (next.phase == Phase::timed) between.push_back(static_cast<double>(next.host_begin_ns - s.host_end_ns));
      }
    expect_near(what + "step_time_ns", median(pitches), row.step_time_ns);
    expect_near(what + "step_p95_ns", oracle::quantile(pitches, 0.95), row.step_p95_ns);
    expect_near(what + "between_steps_ns", median(between), row.between_steps_ns);
  }

  double over_ranks(const std::function<double(size_t)>& value) const {
    std::vector<double> list;
    for (size_t r = 0; r < ranks_.size(); ++r) list.push_back(value(r));
    return *median(list);
  }

  void expect_collectives() const {
    const size_t count = exposures_[0].shares.size();
    ASSERT_EQ(d_.collectives.size(), count);
    ASSERT_EQ(d_.collective_ranks.size(), count * ranks_.size());
    for (size_t j = 0; j < count; ++j) {
      const CollectiveRow& row = d_.collectives[j];
      const Collective& c = ranks_[main_].collectives[j];
      const std::string what = "collective " + std::to_string(j) + " " + c.words + " ";
      EXPECT_EQ(row.sequence, static_cast<int64_t>(j));
      EXPECT_EQ(*row.kind + " " + *row.type, c.words.substr(0, row.kind->size() + 1 + row.type->size())) << what;
      EXPECT_EQ(row.during.value_or(""), c.during) << what;
      EXPECT_EQ(row.kernel, c.kernel) << what;
      EXPECT_EQ(row.op.value_or(""), c.op) << what;
      EXPECT_EQ(static_cast<double>(row.bytes.value()), bytes_of(c.words)) << what;
      EXPECT_EQ(row.bucket ? " bucket " + std::to_string(*row.bucket) : "",
                c.words.substr(std::min(c.words.find(" bucket"), c.words.size())));
      const double moved = bytes_of(c.words) * factor_of(c.words, ranks_.size());
      const double time = over_ranks([&](size_t r) { return ranks_[r].end(j) - ranks_[r].begin(j); });
      const double transfer = over_ranks([&](size_t r) { return exposures_[r].shares[j].transfer; });
      near(what + "time_ns", time, row.time_ns);
      near(what + "transfer_ns", transfer, row.transfer_ns);
      near(what + "exposed_ns", over_ranks([&](size_t r) { return exposures_[r].shares[j].exposed; }), row.exposed_ns);
      near(what + "hidden_ns", over_ranks([&](size_t r) { return exposures_[r].shares[j].hidden; }), row.hidden_ns);
      near(what + "paid_bytes_per_s", moved / time * 1e9, row.paid_bytes_per_s);
      near(what + "bus_bytes_per_s", transfer > uncertainty_ ? Maybe(moved / transfer * 1e9) : Maybe(), row.bus_bytes_per_s);
      const Maybe alone = transfer > uncertainty_ ? alone_of(c) : Maybe();
      near(what + "of_link_ceiling_pct", alone ? Maybe(*alone / transfer * 100) : Maybe(), row.of_link_ceiling_pct);
      const Late& l = arrivals_[j];
      EXPECT_EQ(row.last_rank, l.rank ? std::optional(static_cast<int64_t>(*l.rank)) : std::nullopt) << what;
      near(what + "late_ns", l.rank ? Maybe(l.ns) : Maybe(), row.late_ns);
      EXPECT_EQ(row.late_because.value_or(""), l.because) << what;
      for (size_t r = 0; r < ranks_.size(); ++r) expect_share(what, j, r);
    }
  }

  // Weights travel by way of memory that ranks have opened to each other, where that was measured.
  Maybe alone_of(const Collective& c) const {
    if (!run_.join.links) return std::nullopt;
    const std::string communicator = c.kernel.starts_with("nccl") ? "nccl" : c.kernel.starts_with("wait_for_ranks") ? "peer" : "staged";
    const std::string kind = c.words.substr(0, c.words.find(' ')), type = c.words.substr(kind.size() + 1, 4);
    if (c.op == "gather_weights")
      if (const Maybe in_place = alone_ns(*run_.join.links, communicator, kind + "_in_place", type, ranks_.size(), bytes_of(c.words)))
        return in_place;
    return alone_ns(*run_.join.links, communicator, kind, type, ranks_.size(), bytes_of(c.words));
  }

  void expect_share(std::string what, size_t j, size_t r) const {
    const auto at = std::find_if(d_.collective_ranks.begin(), d_.collective_ranks.end(), [&](const CollectiveRankRow& x) {
      return x.sequence == static_cast<int64_t>(j) && x.rank == static_cast<int64_t>(r);
    });
    ASSERT_NE(at, d_.collective_ranks.end());
    const Share& s = exposures_[r].shares[j];
    const Collective& c = ranks_[r].collectives[j];
    what += "on rank " + std::to_string(r) + " ";
    const double zero = ranks_[main_].step.begin_ns + ranks_[main_].offset;
    near(what + "start_ns", ranks_[r].begin(j) - zero, at->start_ns);
    near(what + "end_ns", ranks_[r].end(j) - zero, at->end_ns);
    near(what + "exposed_ns", s.exposed, at->exposed_ns);
    near(what + "hidden_ns", s.hidden, at->hidden_ns);
    near(what + "wait_ns", s.wait, at->wait_ns);
    near(what + "transfer_ns", s.transfer, at->transfer_ns);
    near(what + "drain_ns", s.drain, at->drain_ns);
    near(what + "exposed_wait_ns", s.exposed_wait, at->exposed_wait_ns);
    near(what + "exposed_transfer_ns", s.exposed_transfer, at->exposed_transfer_ns);
    near(what + "exposed_drain_ns", s.exposed_drain, at->exposed_drain_ns);
    near(what + "queue_ns", c.ready ? Maybe(std::max(0.0, c.begin() - *c.ready)) : Maybe(), at->queue_ns);
    std::string queue_for;
    if (c.ready && c.begin() > *c.ready) {
      queue_for = "work";
      for (const Collective& other : ranks_[r].collectives)
        if (other.begin() < c.begin() && other.end() > *c.ready) queue_for = "collective";
    }
    EXPECT_EQ(at->queue_for.value_or(""), queue_for) << what;
  }

  // Every operation of every rank, from the begin of main_rank's step.
  void expect_lanes() const {
    const double zero = ranks_[main_].step.begin_ns + ranks_[main_].offset;
    size_t count = 0;
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (const Operation& o : ranks_[r].step.operations) {
        ++count;
        const double start = start_of(o) + ranks_[r].offset - zero;
        const auto is = [&](const LaneRow& l) {
          return l.rank == static_cast<int64_t>(r) && l.name == o.record->name && l.stream == o.record->stream &&
                 std::fabs(l.start_ns - start) < 1e-3 && l.shown_ns == o.own_ns && l.pass.value_or("") == (o.place ? o.place->pass : "") &&
                 l.op.value_or("") == (o.place ? o.place->op : "");
        };
        EXPECT_EQ(std::count_if(d_.lanes.begin(), d_.lanes.end(), is), 1) << "rank " << r << " " << o.record->name << " at " << start;
      }
    EXPECT_EQ(d_.lanes.size(), count);
  }

  // What the table of passes shows beside each pass: the rank with most time in it, and what main_rank hides of its communication.
  void expect_pass_cells() const {
    for (const PassRow& p : d_.passes) {
      double most = 0;
      size_t worst = 0;
      for (size_t r = 0; r < ranks_.size(); ++r)
        for (const PassRow& own : ranks_[r].document.passes)
          if (own.name == p.name && own.time_ns > most) most = own.time_ns, worst = r;
      const auto cells = rank_pass_cells(d_, p.name);
      ASSERT_EQ(cells.size(), 3u);
      expect_near("worst of " + p.name, most, cells[0].number);
      expect_near("rank of " + p.name, static_cast<double>(worst), cells[1].number);
      const double hidden = p.name == "communication" ? exposures_[main_].swept.hidden_all_ns : 0;
      near("hidden of " + p.name, hidden > 0 ? Maybe(hidden) : Maybe(), cells[2].number);
    }
  }

  const oracle::Run& run_;
  const ProfileDocument& d_;
  std::vector<Rank> ranks_;
  size_t main_ = 0;
  bool one_clock_ = true;
  double uncertainty_ = 0;
  std::vector<Exposure> exposures_;
  std::vector<Late> arrivals_;
};

TEST(RankOracle, EveryNumberOfRandomRanksIsWhatTheDefinitionsGive) {
  int64_t late = 0, not_rank_0 = 0;
  for (uint64_t seed = 21; seed <= 80; ++seed) {
    const int64_t size = 2 + static_cast<int64_t>(seed % 3);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(size) + " ranks");
    const oracle::Run run = oracle::random_run(seed, size);
    const ProfileDocument d = join_ranks(run.ranks, run.run, run.ceilings, run.options, run.join);
    RankOracle(run, d).expect_all();
    if (seed % 4 == 0) oracle::expect_readable(d);
    late += d.world.slowest_rank.has_value();
    not_rank_0 += d.world.main_rank != 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(late, 10);
  EXPECT_GT(not_rank_0, 10);
}

}  // namespace
