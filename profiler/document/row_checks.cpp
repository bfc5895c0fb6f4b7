// Rows against the launches and the rows that they are sums of.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "profiler/document/checks.h"
#include "profiler/document/missing_rows.h"
#include "profiler/records/names.h"
#include "profiler/records/records.h"

namespace profiler {
namespace {

// What a row's launches say of it. A sum is absent where one of them does not say it.
struct OfLaunches {
  int64_t copies = 0;
  Number time_ns = 0, duration_ns = 0;
  std::vector<const LaunchRow*> kernels;
  std::vector<const LaunchRow*> bounded;  // kernels, and copies with a floor, as in sum_launches
};

void add(Number& sum, const LaunchRow& launch, const Number& part) {
  // A launch that no step timed adds no time; one that was timed and lacks the number is of a document of before it.
  if (part || launch.samples > 0) sum = sum_of(sum, part);
}

void add(OfLaunches& of, const LaunchRow& l) {
  const bool kernel = l.activity == name(Activity::kernel) || l.activity == name(Activity::cpu_op);
  add(of.time_ns, l, l.share_ns);
  add(of.duration_ns, l, l.time_ns);
  if (kernel)
    of.kernels.push_back(&l);
  else
    ++of.copies;
  if (kernel || l.floor_ns) of.bounded.push_back(&l);
}

template <class Member>
Number sum_over(const std::vector<const LaunchRow*>& launches, Member member) {
  if (launches.empty()) return std::nullopt;
  Number sum = 0;
  for (const LaunchRow* l : launches) sum = sum_of(sum, l->*member);
  return sum;
}

// The mean of a share or rate that each launch has over its own time.
Number mean_by_time(const std::vector<const LaunchRow*>& launches, Number Numbers::*member) {
  double over = 0, under = 0;
  for (const LaunchRow* l : launches) {
    if (!(l->*member) || !l->time_ns) return std::nullopt;
    over += *(l->*member) * *l->time_ns;
    under += *l->time_ns;
  }
  return under > 0 ? Number(over / under) : std::nullopt;
}

class RowChecks {
 public:
  RowChecks(const ProfileDocument& document, const std::string& source) : d_(document), source_(source) {}

  // `key_of_launch`: nullopt for a launch that is in no row of the list.
  template <class Row, class RowKey, class LaunchKey>
  void launches(const std::vector<Row>& rows, const char* list, RowKey key_of_row, LaunchKey key_of_launch) const {
    std::map<decltype(key_of_row(rows.front())), OfLaunches> groups;
    for (const Row& row : rows) groups[key_of_row(row)];
    for (size_t i = 0; i < d_.launches.size(); ++i) {
      const auto key = key_of_launch(d_.launches[i]);
      if (!key) continue;
      const auto group = groups.find(*key);
      if (group == groups.end()) fail(fmt::format("launches[{}]", i), fmt::format("found no row of {} that it is in, expected one", list));
      add(group->second, d_.launches[i]);
    }
    for (size_t i = 0; i < rows.size(); ++i) row(rows[i], fmt::format("{}[{}].", list, i), groups.at(key_of_row(rows[i])));
  }

  // Their times are compared with the sums of passes and kernels.
  void totals() const {
    OfLaunches all;
    for (const LaunchRow& l : d_.launches) add(all, l);
    for (const NumberRow& n : number_rows())
      if ((n.beside & kLaunches) && (n.beside & kTotals) && d_.totals.*n.member)
        number(*(d_.totals.*n.member), n, "totals." + std::string(n.name), all.kernels);
    if (d_.totals.kernel_floor_ns) kernel_floors(all.bounded);
  }

  void timeline() const {
    const TimelineSection& t = d_.timeline;
    if (t.window_ns && t.busy_ns && t.idle_ns)
      check_number(*t.window_ns, *t.busy_ns + *t.idle_ns, source_, "timeline.window_ns", "busy_ns + idle_ns");
    if (t.idle_ns && d_.totals.idle_ns)
      check_number(*d_.totals.idle_ns, *t.idle_ns, source_, "totals.idle_ns", "timeline.idle_ns, that of the step shown");
    double gaps_ns = 0;
    for (const GapRow& g : t.gaps) gaps_ns += g.time_ns;
    if (t.idle_ns && !t.gaps.empty()) check_number(*t.idle_ns, gaps_ns, source_, "timeline.idle_ns", "the sum of timeline.gaps[].time_ns");
  }

  void copies() const {
    for (size_t i = 0; i < d_.timeline.copies.size(); ++i) {
      const CopyRow& row = d_.timeline.copies[i];
      const std::string place = fmt::format("timeline.copies[{}].", i);
      OfLaunches of;
      Number bytes = 0;
      for (const LaunchRow& l : d_.launches) {
        if (l.name != row.name || (l.activity != name(Activity::copy) && l.activity != name(Activity::memset))) continue;
        add(of, l);
        bytes = sum_of(bytes, l.bytes ? Number(static_cast<double>(*l.bytes)) : std::nullopt);
      }
      const std::string meaning = "of the launches of that name";
      check_number(static_cast<double>(row.count), static_cast<double>(of.copies), source_, place + "count", "the number " + meaning);
      if (bytes) check_number(static_cast<double>(row.bytes), *bytes, source_, place + "bytes", "the sum of bytes " + meaning);
      if (of.duration_ns) check_number(row.time_ns, *of.duration_ns, source_, place + "time_ns", "the sum of time_ns " + meaning);
    }
  }

  void passes_of_ops() const {
    if (d_.ops.empty()) return;
    for (size_t i = 0; i < d_.passes.size(); ++i) {
      const PassRow& pass = d_.passes[i];
      const auto sum = [&](auto value) {
        double all = 0;
        for (const OpRow& op : d_.ops)
          if (op.pass == pass.name) all += static_cast<double>(value(op));
        return all;
      };
      const auto is = [&](double found, const char* field, auto value) {
        check_number(found, sum(value), source_, fmt::format("passes[{}].{}", i, field),
                     fmt::format("the sum of ops[].{} of {}", field, pass.name));
      };
      is(static_cast<double>(pass.launches), "launches", [](const OpRow& op) { return op.launches; });
      is(static_cast<double>(pass.copies), "copies", [](const OpRow& op) { return op.copies; });
      is(pass.time_ns, "time_ns", [](const OpRow& op) { return op.time_ns; });
      is(pass.duration_ns, "duration_ns", [](const OpRow& op) { return op.duration_ns; });
      for (const auto& [field, member] : {std::pair("flops", &Floored::flops), std::pair("min_bytes", &Floored::min_bytes),
                                          std::pair("floor_ns", &Floored::floor_ns), std::pair("headroom_ns", &Floored::headroom_ns)})
        if (pass.*member) is(*(pass.*member), field, [m = member](const OpRow& op) { return (op.*m).value_or(0); });
    }
  }

  void top_kernels() const {
    for (size_t i = 0; i < d_.passes.size(); ++i) {
      const PassRow& pass = d_.passes[i];
      std::vector<const KernelRow*> of_pass;
      for (const KernelRow& k : d_.kernels)
        if (k.pass == pass.name) of_pass.push_back(&k);
      const auto top =
          std::max_element(of_pass.begin(), of_pass.end(), [](const auto* a, const auto* b) { return a->time_ns < b->time_ns; });
      if (top == of_pass.end()) continue;
      const std::string meaning = fmt::format("the kernels[] row of {} with the most time", pass.name);
      if (pass.top_kernel_ns)
        check_number(*pass.top_kernel_ns, (*top)->time_ns, source_, fmt::format("passes[{}].top_kernel_ns", i), meaning);
      if (pass.top_kernel && std::none_of(of_pass.begin(), of_pass.end(), [&](const KernelRow* k) {
            return k->name == *pass.top_kernel && k->time_ns >= (*top)->time_ns - slack_of((*top)->time_ns);
          }))
        fail(fmt::format("passes[{}].top_kernel", i),
             fmt::format("found '{}', expected '{}': {}", *pass.top_kernel, (*top)->name, meaning));
    }
  }

 private:
  // The totals alone have a sum where some kernels have no floor: that of the others, with what is left out beside it.
  void kernel_floors(const std::vector<const LaunchRow*>& bounded) const {
    std::vector<const LaunchRow*> known;
    int64_t without = 0;
    Number without_ns = 0;
    for (const LaunchRow* l : bounded) {
      if (l->floor_ns) {
        known.push_back(l);
        continue;
      }
      ++without;
      add(without_ns, *l, l->share_ns);
    }
    sum(d_.totals.kernel_floor_ns, known, &LaunchRow::floor_ns, "totals.", "kernel_floor_ns");
    sum(d_.totals.kernel_headroom_ns, known, &LaunchRow::headroom_ns, "totals.", "kernel_headroom_ns");
    check_number(static_cast<double>(d_.totals.launches_without_floor.value_or(0)), static_cast<double>(without), source_,
                 "totals.launches_without_floor", "the kernels in launches[] that have no floor_ns");
    if (without_ns)
      check_number(d_.totals.without_floor_ns.value_or(0), *without_ns, source_, "totals.without_floor_ns",
                   "the sum of share_ns of the kernels without floor_ns");
  }

  [[noreturn]] void fail(const std::string& place, const std::string& what) const {
    throw stepscope::InputError(fmt::format("{}: {}: {}", source_, place, what));
  }

  void row(const KernelRow& row, const std::string& place, const OfLaunches& of) const {
    measured(row, place, of);
    sum(row.floor_ns, of.bounded, &LaunchRow::floor_ns, place, "floor_ns");
    sum(row.headroom_ns, of.bounded, &LaunchRow::headroom_ns, place, "headroom_ns");
  }
  void row(const Floored& row, const std::string& place, const OfLaunches& of) const {
    measured(row, place, of);
    sum(row.kernel_floor_ns, of.bounded, &LaunchRow::floor_ns, place, "kernel_floor_ns");
    sum(row.kernel_headroom_ns, of.bounded, &LaunchRow::headroom_ns, place, "kernel_headroom_ns");
  }

  void measured(const Measured& row, const std::string& place, const OfLaunches& of) const {
    check_number(static_cast<double>(row.launches), static_cast<double>(of.kernels.size()), source_, place + "launches",
                 "the kernels and CPU ops of this row in launches[]");
    check_number(static_cast<double>(row.copies), static_cast<double>(of.copies), source_, place + "copies",
                 "the copies and memsets of this row in launches[]");
    if (of.time_ns) check_number(row.time_ns, *of.time_ns, source_, place + "time_ns", "the sum of share_ns of its launches");
    if (of.duration_ns)
      check_number(row.duration_ns, *of.duration_ns, source_, place + "duration_ns", "the sum of time_ns of its launches");
    for (const NumberRow& n : number_rows())
      if ((n.beside & kLaunches) && row.*n.member) number(*(row.*n.member), n, place + std::string(n.name), of.kernels);
    if (row.bound) bound(*row.bound, place + "bound", of.bounded);
  }

  template <class Member>
  void sum(const Number& found, const std::vector<const LaunchRow*>& launches, Member member, const std::string& place,
           std::string_view field) const {
    if (!found) return;
    const Number expected = sum_over(launches, member);
    if (!expected)
      fail(fmt::format("{}{}", place, field), fmt::format("found {}, expected none: not each of its launches has that", *found));
    check_number(*found, *expected, source_, fmt::format("{}{}", place, field), "the sum over its launches");
  }

  void number(double found, const NumberRow& n, const std::string& place, const std::vector<const LaunchRow*>& kernels) const {
    if (n.adds_up) return sum(found, kernels, n.member, place, "");
    if (n.member == &Numbers::dram_bytes_per_s || n.member == &Numbers::dram_of_ceiling_pct)
      if (const Number mean = mean_by_time(kernels, n.member))
        return check_number(found, *mean, source_, place, "the mean over its launches by their time");
    // The weights of the other means stand in no launch, but no mean is outside of what it is the mean of.
    double low = found, high = found;
    for (const LaunchRow* l : kernels) {
      const Number& v = l->*n.member;
      if (!v) return;
      low = l == kernels.front() ? *v : std::min(low, *v);
      high = l == kernels.front() ? *v : std::max(high, *v);
    }
    if (!(found >= low - slack_of(low) && found <= high + slack_of(high)))
      fail(place, fmt::format("found {}, expected {} to {}: its launches lie there", found, low, high));
  }

  void bound(const std::string& found, const std::string& place, const std::vector<const LaunchRow*>& launches) const {
    std::map<std::string, double> time;  // "" = without a bound
    for (const LaunchRow* l : launches) {
      if (!l->share_ns && l->samples > 0) return;
      time[l->bound.value_or("")] += l->share_ns.value_or(0);
    }
    const auto most = std::max_element(time.begin(), time.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const double most_ns = most == time.end() ? 0 : most->second;
    if (time.contains(found) && time[found] >= most_ns - slack_of(most_ns)) return;
    fail(place, fmt::format("found '{}', expected {}: most of the time of its launches", found,
                            most == time.end() || most->first.empty() ? "none" : "'" + most->first + "'"));
  }

  const ProfileDocument& d_;
  const std::string& source_;
};

}  // namespace

void check_rows(const ProfileDocument& d, const std::string& source) {
  const RowChecks checks(d, source);
  checks.passes_of_ops();
  checks.timeline();
  if (is_missing(d, "record_reduced")) return;
  checks.top_kernels();
  if (d.launches.empty()) return;
  using std::optional, std::pair, std::tuple;
  checks.launches(
      d.passes, "passes", [](const PassRow& r) { return r.name; }, [](const LaunchRow& l) { return l.pass; });
  checks.launches(
      d.ops, "ops", [](const OpRow& r) { return pair(r.pass, r.op); },
      [](const LaunchRow& l) { return l.pass && l.op ? optional(pair(*l.pass, *l.op)) : std::nullopt; });
  checks.launches(
      d.layers, "layers", [](const LayerRow& r) { return pair(r.pass, r.layer); },
      [](const LaunchRow& l) { return l.pass && l.layer ? optional(pair(*l.pass, *l.layer)) : std::nullopt; });
  checks.launches(
      d.kernels, "kernels", [](const KernelRow& r) { return tuple(r.name, r.activity, r.pass, r.op); },
      [](const LaunchRow& l) { return optional(tuple(l.name, l.activity, l.pass, l.op)); });
  checks.totals();
  checks.copies();
}

}  // namespace profiler
