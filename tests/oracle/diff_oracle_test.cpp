// Diffs of documents made at random against docs/diff.md: what changed in each row, and that everything sums.
#include "profiler/diff/diff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "base/errors.h"
#include "tests/oracle/random_run.h"
#include "tests/oracle/step_oracle.h"

namespace {

using namespace profiler;
using oracle::expect_near;
using oracle::Maybe;

// A document of one rank or of several, by the seed; some with a sustained run of another length than the timed steps.
ProfileDocument document_of(uint64_t seed, int64_t size) {
  const oracle::Run run = oracle::random_run(seed, size);
  ProfileDocument d = size > 1 ? join_ranks(run.ranks, run.run, run.ceilings, run.options, run.join)
                               : build_profile(run.ranks[0].recording, run.run, run.ceilings, run.options);
  for (uint64_t i = 0; i < seed % 3; ++i) {
    StateRow row;
    row.state = (seed + i) % 5 ? "warm" : "cool";
    row.run = "sustained";
    row.step_time_ns = 1e6 + static_cast<double>(seed * 7919 % 1000 + i * 31);
    row.time_ns = 1e9 * static_cast<double>(seed * 104'729 % 17 + 3 * i);
    d.timing.states.push_back(row);
  }
  return d;
}

using Group = std::pair<const Measured*, const Measured*>;  // of A and of B; null: not there

template <class Row>
std::map<std::string, Group> pairs_of(const std::vector<Row>& a, const std::vector<Row>& b,
                                      const std::function<std::string(const Row&)>& key) {
  std::map<std::string, Group> groups;
  for (const Row& row : a) groups[key(row)].first = &row;
  for (const Row& row : b) groups[key(row)].second = &row;
  return groups;
}

void expect_side(const std::string& what, const Measured* row, const std::optional<Side>& side) {
  ASSERT_EQ(row != nullptr, side.has_value()) << what;
  if (!row) return;
  expect_near(what + " time_ns", row->time_ns, side->time_ns);
  EXPECT_EQ(side->launches, row->launches + row->copies) << what;
  expect_near(what + " dram_read_bytes", row->dram_read_bytes, side->dram_read_bytes);
  expect_near(what + " tensor_active_pct", row->tensor_active_pct, side->tensor_active_pct);
}

void expect_groups(const std::map<std::string, Group>& expected, const std::vector<GroupChange>& found) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const GroupChange& g = found[i];
    const std::string key = g.pass + "/" + g.op + "/" + (g.layer ? std::to_string(*g.layer) : "");
    const auto at = expected.find(key);
    ASSERT_NE(at, expected.end()) << key;
    expect_side("A's " + key, at->second.first, g.a);
    expect_side("B's " + key, at->second.second, g.b);
    EXPECT_GE(std::fabs(found[i ? i - 1 : 0].delta_ns()), std::fabs(g.delta_ns())) << "the largest change first";
  }
}

// Kernels of one document in one op: names with the time and launches of all rows of the name.
struct Named {
  double time_ns = 0;
  int64_t launches = 0, rows = 0;
  Maybe read_bytes = 0, tensor_pct;  // bytes add up unless one has none; a mean of two rows is not known
  void add(const Named& n) {
    tensor_pct = rows == 0 ? n.tensor_pct : n.rows == 0 ? tensor_pct : Maybe();
    time_ns += n.time_ns;
    launches += n.launches;
    rows += n.rows;
    read_bytes = read_bytes && n.read_bytes ? Maybe(*read_bytes + *n.read_bytes) : Maybe();
  }
};
using Kernels = std::map<std::string, std::map<std::string, Named>>;  // pass/op -> name
Kernels kernels_of(const ProfileDocument& d) {
  Kernels kernels;
  for (const KernelRow& k : d.kernels)
    kernels[k.pass.value_or("unattributed") + "/" + k.op.value_or("")][k.name].add(
        {k.time_ns, k.launches + k.copies, 1, k.dram_read_bytes, k.tensor_active_pct});
  return kernels;
}

void expect_kernels(const ProfileDocument& a, const ProfileDocument& b, const ProfileDiff& d) {
  Kernels of_a = kernels_of(a), of_b = kernels_of(b);
  double delta = d.b_idle_ns - d.a_idle_ns + d.b_rest_ns - d.a_rest_ns;
  for (const KernelChange& k : d.kernels) {
    const std::string place = k.pass + "/" + k.op;
    delta += k.delta_ns();
    // A row has what its names had, and no name is in two rows: what was found is taken away.
    const auto take = [&](Kernels& from, const std::vector<std::string>& names, const Side& side) {
      Named sum;
      for (const std::string& name : names) {
        ASSERT_TRUE(from[place].contains(name)) << place << " " << name;
        sum.add(from[place][name]);
        from[place].erase(name);
      }
      expect_near(place, sum.time_ns, side.time_ns);
      EXPECT_EQ(side.launches, sum.launches) << place;
      if (sum.rows == 0) return;
      expect_near(place + " dram_read_bytes", sum.read_bytes, side.dram_read_bytes);
      expect_near(place + " tensor_active_pct", sum.tensor_pct, side.tensor_active_pct);
    };
    take(of_a, k.a_kernels, k.a);
    take(of_b, k.b_kernels, k.b);
    const bool same = k.a_kernels == k.b_kernels;
    EXPECT_EQ(k.change, k.b_kernels.empty() ? "gone" : k.a_kernels.empty() ? "new" : same ? "changed" : "replaced") << place;
  }
  for (const Kernels* left : {&of_a, &of_b})
    for (const auto& [place, names] : *left) EXPECT_TRUE(names.empty()) << place << " " << names.begin()->first << " is in no row";
  expect_near("kernels, idle and rest", *b.totals.time_ns - *a.totals.time_ns, delta);
  // In an op, what is gone and what is new have replaced each other.
  std::map<std::string, std::set<std::string>> changes;
  for (const KernelChange& k : d.kernels)
    if (k.pass != "unattributed") changes[k.pass + "/" + k.op].insert(k.change);
  for (const auto& [place, words] : changes) EXPECT_FALSE(words.contains("gone") && words.contains("new")) << place;
}

void expect_ranks(const ProfileDocument& a, const ProfileDocument& b, const ProfileDiff& d) {
  ASSERT_EQ(d.ranks.has_value(), !a.ranks.empty() || !b.ranks.empty());
  if (!d.ranks) return;
  const RankChange& c = *d.ranks;
  const auto change = [&](const std::function<bool(const std::string&)>& of) {
    double ns = 0;
    for (const PassRow& p : a.passes) ns -= of(p.name) ? p.time_ns : 0;
    for (const PassRow& p : b.passes) ns += of(p.name) ? p.time_ns : 0;
    return ns;
  };
  EXPECT_EQ(c.a_ranks, std::max<int64_t>(1, static_cast<int64_t>(a.ranks.size())));
  EXPECT_EQ(c.b_ranks, std::max<int64_t>(1, static_cast<int64_t>(b.ranks.size())));
  expect_near("exposed_ns", change([](const std::string& p) { return p == "communication"; }), c.exposed_ns);
  expect_near("update_ns", change([](const std::string& p) { return p == "optimizer"; }), c.update_ns);
  expect_near("work_ns", change([](const std::string& p) { return p != "communication" && p != "optimizer"; }), c.work_ns);
  expect_near("idle_ns", *b.totals.idle_ns - *a.totals.idle_ns, c.idle_ns);
  expect_near("step_ns", *b.totals.time_ns - *a.totals.time_ns, c.step_ns);
  expect_near("all parts", c.step_ns, c.exposed_ns + c.work_ns + c.update_ns + c.idle_ns + c.rest_ns);
  expect_near("hidden_ns", b.world.hidden_ns, c.hidden_ns);
  expect_near("b_exposed_ns", b.world.exposed_ns, c.b_exposed_ns);
}

TEST(DiffOracle, EveryRowIsTheDifferenceOfItsRowsAndAllOfThemSum) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ProfileDocument a = document_of(seed, seed % 3 == 0 ? 2 : 1), b = document_of(seed + 5000, seed % 4 == 0 ? 3 : 1);
    const ProfileDiff d = diff_profiles(a, b);
    expect_groups(pairs_of<PassRow>(a.passes, b.passes, [](const PassRow& p) { return p.name + "//"; }), d.passes);
    expect_groups(pairs_of<OpRow>(a.ops, b.ops, [](const OpRow& o) { return o.pass + "/" + o.op + "/"; }), d.ops);
    expect_groups(pairs_of<LayerRow>(a.layers, b.layers, [](const LayerRow& l) { return l.pass + "//" + std::to_string(l.layer); }),
                  d.layers);
    expect_kernels(a, b, d);
    expect_ranks(a, b, d);
    const StepTime &x = a.timing.step_time_ns, &y = b.timing.step_time_ns;
    ASSERT_TRUE(d.step);
    EXPECT_EQ(d.step->basis, "timed steps");
    expect_near("a_ns", x.median, d.step->a_ns);
    expect_near("b_ns", y.median, d.step->b_ns);
    const bool intervals = x.interval_low && y.interval_low;
    expect_near("low", intervals ? Maybe(*y.interval_low / *x.interval_high) : Maybe(), d.step->low);
    expect_near("high", intervals ? Maybe(*y.interval_high / *x.interval_low) : Maybe(), d.step->high);
    EXPECT_EQ(d.step->differs(), intervals ? std::optional(*d.step->low > 1 || *d.step->high < 1) : std::nullopt);
    expect_near("device of A", a.totals.time_ns, d.a_device.time_ns);
    expect_near("device of B", b.totals.time_ns, d.b_device.time_ns);
    Maybe first_state;  // warm where both have it
    for (const char* state : {"warm", "cool"}) {
      const auto longest = [&](const ProfileDocument& of) {
        const StateRow* best = nullptr;
        for (const StateRow& s : of.timing.states)
          if (s.state == state && (!best || s.time_ns > best->time_ns)) best = &s;
        return best;
      };
      const auto at = std::find_if(d.states.begin(), d.states.end(), [&](const StateChange& s) { return s.a.state == state; });
      ASSERT_EQ(at != d.states.end(), longest(a) && longest(b)) << state;
      if (at == d.states.end()) continue;
      expect_near(state, longest(b)->step_time_ns / longest(a)->step_time_ns, at->ratio());
      if (!first_state) first_state = at->ratio();
    }
    // A gate compares the medians, unless the timed steps of the two were of different states.
    const bool like = !a.timing.state || !b.timing.state || a.timing.state == b.timing.state;
    const Maybe judged = like ? Maybe(*y.median / *x.median) : first_state;
    if (judged)
      expect_near("judged", judged, d.judged().ratio);
    else
      EXPECT_THROW(d.judged(), stepscope::InputError);
    if (HasFailure()) return;
  }
}

}  // namespace
