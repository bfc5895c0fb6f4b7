#include "profiler/ranks/join_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/errors.h"
#include "base/statistics.h"
#include "base/text.h"
#include "profiler/attribute/communication.h"
#include "profiler/attribute/words.h"
#include "profiler/document/missing_rows.h"
#include "profiler/ranks/clocks.h"
#include "profiler/ranks/stragglers.h"

namespace profiler {
namespace {

using stepscope::InputError;

// One rank on its way into the document.
struct Rank {
  const RankRecording* from = nullptr;
  RankRecord id;
  ProfileDocument document;
  std::optional<TracedStep> traced;
  RankStep step;
};

// Everything that is derived from all ranks together.
struct Joined {
  bool whole = false;  // every rank of the run is here
  bool same = false;   // all launched the same collectives
  ClockAlignment clocks;
  std::vector<RankExposure> exposures;
  std::vector<Arrival> arrivals;
  std::optional<Slowest> slowest;
  bool skew_known() const { return whole && same && clocks.uncertainty_ns.has_value(); }
};

Text text_or_none(const std::string& s) { return s.empty() ? std::nullopt : Text(s); }

void check_same(const RankRecording& a, const RankRecording& b, const char* what, const std::string& of_a, const std::string& of_b) {
  if (of_a == of_b) return;
  throw InputError(fmt::format("{} and {} do not belong together: {} '{}' and '{}'", a.source, b.source, what, of_a, of_b));
}

void check_ranks(const std::vector<RankRecording>& recordings, bool partial) {
  if (recordings.empty()) throw InputError("no recording to join");
  std::map<int64_t, const RankRecording*> seen;
  for (const RankRecording& r : recordings) {
    if (!r.recording.rank) throw InputError(fmt::format("{}: not the recording of one rank of several; it names no rank", r.source));
    const RankRecording& first = recordings.front();
    const RankRecord &a = *first.recording.rank, &b = *r.recording.rank;
    check_same(first, r, "job", a.job, b.job);
    check_same(first, r, "number of ranks", std::to_string(a.size), std::to_string(b.size));
    check_same(first, r, "build", a.build, b.build);
    if (const auto [at, is_new] = seen.emplace(b.rank, &r); !is_new)
      throw InputError(fmt::format("{} and {} are both of rank {}", at->second->source, r.source, b.rank));
  }
  const int64_t size = recordings.front().recording.rank->size;
  if (partial || static_cast<int64_t>(seen.size()) == size) return;
  std::vector<int> absent;
  for (int64_t r = 0; r < size; ++r)
    if (!seen.contains(r)) absent.push_back(static_cast<int>(r));
  throw InputError(fmt::format("no recording of {} of {}; --partial shows the others, without who waited for whom",
                               stepscope::named_ranks(absent), size));
}

std::string op_of(const LaunchRecord& l) {
  const auto place = parse_range_path(l.path).place;
  return place ? std::string(op_words()[static_cast<size_t>(place->op)]) : "";
}

RankStep rank_step(const TracedStep& t) {
  RankStep step;
  step.window = t.window;
  step.collectives = collectives_of(t);
  std::set<std::pair<int64_t, int64_t>> taken;
  for (const CollectiveRun& c : step.collectives)
    for (const Interval& part : c.parts) taken.insert({part.begin_ns, part.end_ns});
  for (const TracedOperation& o : t.operations) {
    if (!o.has_time) continue;
    const LaunchRecord& l = *o.record;
    if (!is_communication(l))
      step.work.push_back({{l.start_ns, l.end_ns}, l.activity, l.index, op_of(l)});
    else if (!taken.contains({l.start_ns, l.end_ns}))
      step.other_communication.push_back({l.start_ns, l.end_ns, true});
  }
  return step;
}

std::vector<Rank> read_ranks(const std::vector<RankRecording>& recordings, const std::optional<RunInfo>& run, const Ceilings& ceilings,
                             const ProfileOptions& options) {
  std::vector<Rank> ranks;
  for (const RankRecording& r : recordings) {
    Rank& rank = ranks.emplace_back();
    rank.from = &r;
    rank.id = *r.recording.rank;
    try {
      rank.traced = find_traced_step(r.recording);
    } catch (const InputError& e) {
      throw InputError(fmt::format("{}: {}", r.source, e.what()));
    }
    rank.document = build_profile(r.recording, run, ceilings, options);
    if (rank.traced) rank.step = rank_step(*rank.traced);
  }
  std::sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) { return a.id.rank < b.id.rank; });
  const Rank* first = nullptr;
  for (const Rank& r : ranks) {
    if (!r.traced) continue;
    if (first && first->traced->step != r.traced->step)
      throw InputError(fmt::format("the last traced step is {} in {} and {} in {}: ranks are joined within one step",
                                   first->traced->step.value_or(-1), first->from->source, r.traced->step.value_or(-1), r.from->source));
    if (!first) first = &r;
  }
  return ranks;
}

// The lower of the two in the middle where they are even, so that the document is that of one rank.
size_t median_rank(const std::vector<Rank>& ranks) {
  std::vector<size_t> order;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (ranks[r].document.totals.time_ns) order.push_back(r);
  if (order.empty()) return 0;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return *ranks[a].document.totals.time_ns < *ranks[b].document.totals.time_ns; });
  return order[(order.size() - 1) / 2];
}

// Times and sizes differ from rank to rank; what is done and with what does not.
std::string difference(const Rank& a, const Rank& b) {
  const auto &ca = a.step.collectives, &cb = b.step.collectives;
  if (ca.size() != cb.size()) return fmt::format("{} collectives on rank {}, {} on rank {}", ca.size(), a.id.rank, cb.size(), b.id.rank);
  for (size_t j = 0; j < ca.size(); ++j)
    if (ca[j].kind != cb[j].kind || ca[j].op != cb[j].op || ca[j].bytes != cb[j].bytes || ca[j].bucket != cb[j].bucket)
      return fmt::format("collective {} is {} '{}' on rank {} and {} '{}' on rank {}", j, ca[j].kind, ca[j].op, a.id.rank, cb[j].kind,
                         cb[j].op, b.id.rank);
  return "";
}

RankCondition condition_of(const RankRow& row) {
  const auto& reasons = row.throttle_reasons;
  return {row.sm_clock_mhz, std::find(reasons.begin(), reasons.end(), "power_cap") != reasons.end(), row.between_steps_ns};
}

Number between_steps(const Recording& r, Phase phase) {
  std::map<int64_t, const StepRecord*> steps;
  for (const StepRecord& s : r.steps)
    if (s.phase == phase) steps[s.step] = &s;
  std::vector<double> gaps;
  for (const auto& [number, s] : steps)
    if (const auto next = steps.find(number + 1); next != steps.end())
      gaps.push_back(static_cast<double>(next->second->host_begin_ns - s->host_end_ns));
  return stepscope::quantile(gaps, 0.5);
}

RankRow rank_row(const Rank& r) {
  RankRow row;
  const EnvironmentSection& e = r.document.environment;
  row.rank = r.id.rank;
  row.host = text_or_none(r.id.host);
  row.gpu = e.gpu;
  row.uuid = e.uuid;
  const std::vector<double> pitches = step_pitches_ns(r.from->recording, Phase::timed);
  row.step_time_ns = stepscope::quantile(pitches, 0.5);
  row.step_p95_ns = stepscope::quantile(pitches, 0.95);
  row.sm_clock_mhz = e.sm_clock_mhz_median;
  row.power_w = e.power_w_median;
  row.temperature_c = e.temperature_c_max;
  row.throttled_samples = e.throttled_samples;
  row.throttle_reasons = e.throttle_reasons;
  row.between_steps_ns = between_steps(r.from->recording, Phase::timed);
  return row;
}

// Steps of all ranks, or of one that stands for itself where they cannot be compared.
Joined compare(std::vector<Rank>& ranks, const std::vector<RankRow>& rows, ProfileDocument& d) {
  Joined joined;
  joined.whole = static_cast<int64_t>(ranks.size()) == ranks.front().id.size;
  joined.same = true;
  for (const Rank& r : ranks) {
    if (!r.traced) {
      add_missing(d, {"rank_not_traced", 1, fmt::format("rank {}", r.id.rank)});
      joined.same = false;
    } else if (const std::string what = difference(ranks.front(), r); joined.same && !what.empty()) {
      add_missing(d, {"collectives_not_joined", 1, what});
      joined.same = false;
    }
  }
  if (!joined.whole)
    add_missing(d, {"rank_missing", ranks.front().id.size - static_cast<int64_t>(ranks.size()),
                    fmt::format("{} of {} ranks are here", ranks.size(), ranks.front().id.size)});
  if (!joined.same) {
    for (const Rank& r : ranks) joined.exposures.push_back(exposure_of({r.step}).front());
    return joined;
  }
  std::vector<std::vector<Interval>> times;
  std::vector<std::string> clocks;
  for (const Rank& r : ranks) {
    std::vector<Interval>& list = times.emplace_back();
    for (const CollectiveRun& c : r.step.collectives) list.push_back(c.time);
    clocks.push_back(r.id.boot_id.empty() ? "" : r.id.boot_id + " " + r.id.time_namespace);
  }
  joined.clocks = align_clocks(times, clocks);
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r].step.offset_ns = joined.clocks.ranks[r].offset_ns;
  if (!joined.clocks.uncertainty_ns)
    add_missing(d, {"clocks_not_aligned", 1,
                    joined.clocks.contradictory ? "the collectives of this step contradict each other"
                    : ranks.size() == 1         ? "the recording of one rank tells nothing of the others' clocks"
                                                : "the step has no collective"});
  std::vector<RankStep> steps;
  for (const Rank& r : ranks) steps.push_back(r.step);
  joined.exposures = exposure_of(steps);
  joined.arrivals = arrivals_of(steps, joined.skew_known() ? joined.clocks.uncertainty_ns : std::nullopt);
  std::vector<RankCondition> conditions;
  for (const RankRow& row : rows) conditions.push_back(condition_of(row));
  joined.slowest = slowest_of(steps, joined.exposures, joined.arrivals, conditions);
  return joined;
}

void fill_rank_rows(ProfileDocument& d, const std::vector<Rank>& ranks, const Joined& joined) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    RankRow& row = d.ranks[r];
    if (!ranks[r].traced) continue;
    const RankExposure& e = joined.exposures[r];
    row.device_ns = e.window_ns;
    row.work_ns = e.work_ns;
    row.exposed_ns = e.exposed_ns;
    row.hidden_ns = e.hidden_ns;
    row.idle_ns = e.idle_ns;
    if (joined.same) {
      row.clock_offset_ns = joined.clocks.ranks[r].offset_ns;
      row.clock_uncertainty_ns = joined.clocks.ranks[r].uncertainty_ns;
    }
    if (joined.skew_known()) {
      row.exposed_wait_ns = 0;
      for (const CollectiveShare& c : e.collectives) *row.exposed_wait_ns += c.wait.exposed_ns;
      if (joined.slowest) {  // else no skew is above the uncertainty of the clocks: nobody is known to be late, nor to be in time
        row.late_ns = 0;
        row.last_arrivals = 0;
      }
      for (const Arrival& a : joined.arrivals)
        if (a.last == r) {
          *row.late_ns += a.late_ns;
          ++*row.last_arrivals;
        }
    }
    for (const PassRow& p : ranks[r].document.passes)
      d.rank_passes.push_back({ranks[r].id.rank, p.name, p.time_ns, p.name == "communication" ? e.hidden_ns : 0.0});
  }
}

template <class ValueOf>
double median_over(const Joined& joined, ValueOf value_of) {
  std::vector<double> values;
  for (const RankExposure& e : joined.exposures) values.push_back(value_of(e));
  return stepscope::median(std::move(values));
}

// What carried it, by the kernel with which it begins.
const char* communicator_of(const CollectiveRow& row) {
  return is_nccl_kernel(row.kernel) ? "nccl" : is_meet_kernel(row.kernel) ? "peer" : "staged";
}

// Weights travel by peer into memory that the ranks have opened to each other, other gathers through windows.
std::optional<double> alone_ns(const LinkCeilings& links, const CollectiveRow& row, int64_t ranks) {
  const std::string communicator = communicator_of(row), type = row.type.value_or("");
  if (*row.kind == "all_gather" && row.op == "gather_weights")
    if (const auto in_place = measured_ns(links, communicator, "all_gather_in_place", type, ranks, *row.bytes)) return in_place;
  return measured_ns(links, communicator, *row.kind, type, ranks, *row.bytes);
}

void fill_bandwidth(CollectiveRow& row, int64_t ranks, const std::optional<LinkCeilings>& links, std::optional<double> uncertainty_ns) {
  const double factor = bus_factor(row.kind.value_or(""), ranks);
  if (!row.bytes || factor <= 0) return;
  const double moved = factor * static_cast<double>(*row.bytes);
  if (row.time_ns > 0) row.paid_bytes_per_s = moved / row.time_ns * 1e9;
  // A time that the clocks cannot resolve makes no bandwidth.
  if (!row.transfer_ns || !(*row.transfer_ns > uncertainty_ns.value_or(0))) return;
  row.bus_bytes_per_s = moved / *row.transfer_ns * 1e9;
  if (!links) return;
  if (const auto alone = alone_ns(*links, row, ranks)) row.of_link_ceiling_pct = *alone / *row.transfer_ns * 100;
}

void fill_collectives(ProfileDocument& d, const std::vector<Rank>& ranks, const Joined& joined, size_t main, const JoinOptions& options) {
  if (!joined.same) return;
  const double zero = static_cast<double>(ranks[main].step.window.begin_ns) + ranks[main].step.offset_ns;
  int64_t without_size = 0;
  for (size_t j = 0; j < ranks[main].step.collectives.size(); ++j) {
    const CollectiveRun& c = ranks[main].step.collectives[j];
    CollectiveRow row;
    row.sequence = static_cast<int64_t>(j);
    row.kind = text_or_none(c.kind);
    row.type = text_or_none(c.type);
    row.op = text_or_none(c.op);
    row.bucket = c.bucket;
    row.bytes = c.bytes;
    row.during = text_or_none(c.during);
    row.kernel = c.kernel;
    row.time_ns = median_over(joined, [&](const RankExposure& e) { return e.collectives[j].end_ns - e.collectives[j].begin_ns; });
    row.exposed_ns = median_over(joined, [&](const RankExposure& e) { return e.collectives[j].exposed_ns; });
    row.hidden_ns = median_over(joined, [&](const RankExposure& e) { return e.collectives[j].hidden_ns; });
    if (joined.skew_known()) {
      row.transfer_ns = median_over(joined, [&](const RankExposure& e) { return e.collectives[j].transfer.time_ns; });
      if (const Arrival& a = joined.arrivals[j]; a.last) {
        row.last_rank = ranks[*a.last].id.rank;
        row.late_ns = a.late_ns;
        row.late_because = text_or_none(a.because);
      }
    }
    fill_bandwidth(row, ranks.front().id.size, options.links, joined.clocks.uncertainty_ns);
    without_size += !row.bytes;
    d.collectives.push_back(std::move(row));
    for (size_t r = 0; r < ranks.size(); ++r) {
      const CollectiveShare& s = joined.exposures[r].collectives[j];
      CollectiveRankRow one;
      one.sequence = static_cast<int64_t>(j);
      one.rank = ranks[r].id.rank;
      one.start_ns = s.begin_ns - zero;
      one.end_ns = s.end_ns - zero;
      one.exposed_ns = s.exposed_ns;
      one.hidden_ns = s.hidden_ns;
      one.queue_ns = s.queue_ns;
      one.queue_for = text_or_none(s.queue_for);
      if (joined.skew_known()) {
        one.wait_ns = s.wait.time_ns;
        one.transfer_ns = s.transfer.time_ns;
        one.drain_ns = s.drain.time_ns;
        one.exposed_wait_ns = s.wait.exposed_ns;
        one.exposed_transfer_ns = s.transfer.exposed_ns;
        one.exposed_drain_ns = s.drain.exposed_ns;
      }
      d.collective_ranks.push_back(std::move(one));
    }
  }
  if (without_size) add_missing(d, {"collective_size_unknown", without_size, ""});
  if (!options.links && !d.collectives.empty()) add_missing(d, {"link_ceilings_not_measured", 1, ""});
}

// Sums over the collectives, each absent where one of them has no answer.
void fill_bytes(WorldSection& w, const ProfileDocument& d, int64_t ranks, std::optional<double> uncertainty_ns) {
  double bytes = 0, moved = 0, transfer = 0, paid = 0, alone = 0;
  bool sized = !d.collectives.empty(), timed = sized, with_ceiling = sized;
  for (const CollectiveRow& c : d.collectives) {
    sized = sized && c.bytes && c.kind;
    timed = timed && c.transfer_ns;
    with_ceiling = with_ceiling && c.of_link_ceiling_pct;
    if (!sized) break;
    bytes += static_cast<double>(*c.bytes);
    moved += bus_factor(*c.kind, ranks) * static_cast<double>(*c.bytes);
    paid += c.time_ns;
    transfer += c.transfer_ns.value_or(0);
    alone += c.of_link_ceiling_pct.value_or(0) / 100 * c.transfer_ns.value_or(0);
  }
  if (!sized) return;
  w.bytes = bytes;
  if (paid > 0) w.paid_bytes_per_s = moved / paid * 1e9;
  // Each transfer may be as far off as the clocks of the ranks are apart.
  if (!timed || !(transfer > uncertainty_ns.value_or(0) * static_cast<double>(d.collectives.size()))) return;
  w.bus_bytes_per_s = moved / transfer * 1e9;
  if (with_ceiling) w.of_link_ceiling_pct = alone / transfer * 100;
}

void fill_world(ProfileDocument& d, const std::vector<Rank>& ranks, const Joined& joined, size_t main) {
  WorldSection& w = d.world;
  w.size = ranks.front().id.size;
  w.ranks = static_cast<int64_t>(ranks.size());
  w.job = text_or_none(ranks.front().id.job);
  w.main_rank = ranks[main].id.rank;
  if (d.timing.tokens_per_s) w.tokens_per_s = *d.timing.tokens_per_s * static_cast<double>(*w.size);
  for (StateRow& s : d.timing.states)
    if (s.tokens_per_s) *s.tokens_per_s *= static_cast<double>(*w.size);
  w.clock = "none";
  if (joined.same && joined.clocks.uncertainty_ns) {
    w.clock = joined.clocks.shared ? "shared" : "causality";
    w.clock_uncertainty_ns = joined.clocks.uncertainty_ns;
  }
  if (!ranks[main].traced) return;
  const RankExposure& e = joined.exposures[main];
  w.collectives = static_cast<int64_t>(ranks[main].step.collectives.size());
  w.communication_ns = e.exposed_ns + e.hidden_ns;
  w.exposed_ns = e.exposed_ns;
  w.hidden_ns = e.hidden_ns;
  if (joined.skew_known()) {
    w.exposed_wait_ns = w.exposed_transfer_ns = w.exposed_drain_ns = 0;
    for (const CollectiveShare& c : e.collectives) {
      *w.exposed_wait_ns += c.wait.exposed_ns;
      *w.exposed_transfer_ns += c.transfer.exposed_ns;
      *w.exposed_drain_ns += c.drain.exposed_ns;
    }
  }
  fill_bytes(w, d, ranks.front().id.size, joined.clocks.uncertainty_ns);
  if (!joined.slowest) return;
  w.slowest_rank = ranks[joined.slowest->rank].id.rank;
  w.slowest_late_ns = joined.slowest->late_ns;
  w.slowest_why = text_or_none(joined.slowest->why);
}

void fill_lanes(ProfileDocument& d, const std::vector<Rank>& ranks, size_t main) {
  const double zero = static_cast<double>(ranks[main].step.window.begin_ns) + ranks[main].step.offset_ns;
  for (const Rank& r : ranks)
    for (const LaunchRow& l : r.document.launches) {
      if (!l.start_ns || !l.shown_ns) continue;
      const double start = *l.start_ns + static_cast<double>(r.step.window.begin_ns) + r.step.offset_ns - zero;
      d.lanes.push_back({r.id.rank, l.name, l.activity, l.pass, l.op, l.layer, l.stream, start, *l.shown_ns});
    }
}

// Notices about the tables, which are the main rank's: another rank's are not true of them.
bool speaks_of_the_tables(const MissingRow& m) { return m.name == "traced_steps_vary" || m.name == "ceilings_of_other_gpu"; }

// Of the other ranks: what the document does not say yet, and whatever makes numbers wrong.
void take_missing_of_others(ProfileDocument& d, const std::vector<Rank>& ranks, size_t main) {
  const ProfileDocument own = d;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (r == main) continue;
    for (const MissingRow& m : ranks[r].document.missing)
      if (!speaks_of_the_tables(m) && (m.severity == "severe" || !is_missing(own, m.name)))
        add_missing(d, {m.name, m.count, fmt::format("rank {}{}{}", ranks[r].id.rank, m.detail.empty() ? "" : ": ", m.detail)});
  }
}

}  // namespace

ProfileDocument join_ranks(const std::vector<RankRecording>& recordings, const std::optional<RunInfo>& run, const Ceilings& ceilings,
                           const ProfileOptions& options, const JoinOptions& join) {
  check_ranks(recordings, join.partial);
  std::vector<Rank> ranks = read_ranks(recordings, run, ceilings, options);
  const size_t main = median_rank(ranks);
  ProfileDocument d = ranks[main].document;
  take_missing_of_others(d, ranks, main);
  for (const Rank& r : ranks) d.ranks.push_back(rank_row(r));
  const Joined joined = compare(ranks, d.ranks, d);
  fill_rank_rows(d, ranks, joined);
  fill_collectives(d, ranks, joined, main, join);
  fill_world(d, ranks, joined, main);
  fill_lanes(d, ranks, main);
  sort_missing(d);
  return d;
}

}  // namespace profiler
