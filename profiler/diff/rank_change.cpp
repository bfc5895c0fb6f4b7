#include "profiler/diff/rank_change.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "profiler/report/cells.h"
#include "profiler/report/rank_views.h"

namespace profiler {
namespace {

struct Parts {
  double communication_ns = 0, work_ns = 0, update_ns = 0, idle_ns = 0, rest_ns = 0;
};

Parts parts_of(const ProfileDocument& d) {
  Parts p;
  for (const PassRow& pass : d.passes) {
    if (pass.name == "communication")
      p.communication_ns += pass.time_ns;
    else if (pass.name == "optimizer")
      p.update_ns += pass.time_ns;
    else
      p.work_ns += pass.time_ns;
  }
  p.idle_ns = d.totals.idle_ns.value_or(0);
  p.rest_ns = *d.totals.time_ns - p.communication_ns - p.work_ns - p.update_ns - p.idle_ns;
  return p;
}

std::string ranks(int64_t n) { return n == 1 ? "1 rank" : fmt::format("{} ranks", n); }

}  // namespace

int64_t ranks_of(const ProfileDocument& d) { return d.ranks.empty() ? 1 : d.world.size.value_or(static_cast<int64_t>(d.ranks.size())); }

std::optional<RankChange> rank_change(const ProfileDocument& a, const ProfileDocument& b) {
  if ((a.ranks.empty() && b.ranks.empty()) || !a.totals.time_ns || !b.totals.time_ns || a.passes.empty() || b.passes.empty())
    return std::nullopt;
  const Parts x = parts_of(a), y = parts_of(b);
  RankChange c;
  c.a_ranks = ranks_of(a);
  c.b_ranks = ranks_of(b);
  c.step_ns = *b.totals.time_ns - *a.totals.time_ns;
  c.exposed_ns = y.communication_ns - x.communication_ns;
  c.work_ns = y.work_ns - x.work_ns;
  if (x.work_ns > 0) c.work_pct = c.work_ns / x.work_ns * 100;
  c.update_ns = y.update_ns - x.update_ns;
  c.idle_ns = y.idle_ns - x.idle_ns;
  c.rest_ns = y.rest_ns - x.rest_ns;
  c.b_exposed_ns = b.world.exposed_ns;
  c.wait_ns = b.world.exposed_wait_ns;
  c.transfer_ns = b.world.exposed_transfer_ns;
  c.drain_ns = b.world.exposed_drain_ns;
  c.hidden_ns = b.world.hidden_ns;
  return c;
}

std::string rank_words(const RankChange& c) {
  std::string text = fmt::format("{} -> {}, on the device {} ms = exposed communication {}", ranks(c.a_ranks), ranks(c.b_ranks),
                                 change_in_milliseconds(c.step_ns), change_in_milliseconds(c.exposed_ns));
  if (const std::string parts = exposed_parts(c.b_exposed_ns, c.wait_ns, c.transfer_ns, c.drain_ns); !parts.empty())
    text += fmt::format(" (B's {}: {})", milliseconds(c.b_exposed_ns), parts);
  text += fmt::format(", work {} ({:+.1f}%", change_in_milliseconds(c.work_ns), c.work_pct);
  if (c.hidden_ns) text += fmt::format("; {} ms of communication run beside B's", milliseconds(c.hidden_ns));
  return text + fmt::format("), update {}, idle {}, rest {}", change_in_milliseconds(c.update_ns), change_in_milliseconds(c.idle_ns),
                            change_in_milliseconds(c.rest_ns));
}

nlohmann::ordered_json to_json(const RankChange& c) {
  nlohmann::ordered_json j{{"a_ranks", c.a_ranks},       {"b_ranks", c.b_ranks}, {"step_ns", c.step_ns},
                           {"exposed_ns", c.exposed_ns}, {"work_ns", c.work_ns}, {"work_pct", c.work_pct},
                           {"update_ns", c.update_ns},   {"idle_ns", c.idle_ns}, {"rest_ns", c.rest_ns}};
  if (c.b_exposed_ns) j["b_exposed_ns"] = *c.b_exposed_ns;
  if (c.wait_ns) j["b_wait_ns"] = *c.wait_ns;
  if (c.transfer_ns) j["b_transfer_ns"] = *c.transfer_ns;
  if (c.drain_ns) j["b_drain_ns"] = *c.drain_ns;
  if (c.hidden_ns) j["b_hidden_ns"] = *c.hidden_ns;
  return j;
}

}  // namespace profiler
