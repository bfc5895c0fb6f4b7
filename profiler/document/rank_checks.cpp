#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/errors.h"
#include "profiler/document/checks.h"
#include "profiler/document/missing_rows.h"

namespace profiler {
namespace {

struct RankChecks {
  const ProfileDocument& d;
  const std::string& source;
  const RankRow* main = nullptr;
  std::string main_place;

  [[noreturn]] void fail(const std::string& place, const std::string& what) const {
    throw stepscope::InputError(fmt::format("{}: {}: {}", source, place, what));
  }
  void same(const Number& found, const Number& expected, const std::string& place, const std::string& meaning) const {
    if (found && expected) check_number(*found, *expected, source, place, meaning);
  }
  void count(const Count& found, size_t expected, const std::string& place, const std::string& meaning) const {
    if (found && *found != static_cast<int64_t>(expected)) fail(place, fmt::format("found {}, expected {}: {}", *found, expected, meaning));
  }
  void at_most(double found, const Number& most, const std::string& place, const std::string& meaning) const {
    if (most && !(found <= *most + slack_of(*most))) fail(place, fmt::format("found {}, expected {} at most: {}", found, *most, meaning));
  }
  void is_rank(const Count& found, const std::string& place) const {
    std::vector<int64_t> all;
    for (const RankRow& r : d.ranks) all.push_back(r.rank);
    if (found && std::find(all.begin(), all.end(), *found) == all.end())
      fail(place, fmt::format("found {}, expected a rank of ranks[]: {}", *found, fmt::join(all, ", ")));
  }
  // Of exposed time: the parts that are there.
  template <class Row>
  void exposed_parts(const Row& row, const Number& exposed, const std::string& place) const {
    if (row.exposed_wait_ns || row.exposed_transfer_ns || row.exposed_drain_ns)
      at_most(row.exposed_wait_ns.value_or(0) + row.exposed_transfer_ns.value_or(0) + row.exposed_drain_ns.value_or(0), exposed,
              place + "exposed_wait_ns + exposed_transfer_ns + exposed_drain_ns", "they are parts of exposed_ns");
  }

  void who() {
    const WorldSection& w = d.world;
    if (d.ranks.empty()) fail("ranks", "found no row, expected one of each rank: world is there");
    std::map<int64_t, size_t> seen;
    for (size_t i = 0; i < d.ranks.size(); ++i) {
      const std::string place = fmt::format("ranks[{}].rank", i);
      const auto [first, is_new] = seen.emplace(d.ranks[i].rank, i);
      if (!is_new) fail(place, fmt::format("found {}, the rank of ranks[{}] too, expected each once", d.ranks[i].rank, first->second));
      if (w.size && d.ranks[i].rank >= *w.size)
        fail(place, fmt::format("found {}, expected 0 to {}: world.size is {}", d.ranks[i].rank, *w.size - 1, *w.size));
    }
    count(w.ranks, d.ranks.size(), "world.ranks", "the rows of ranks");
    if (!is_missing(d, "rank_missing"))
      count(w.size, d.ranks.size(), "world.size", "the rows of ranks, as missing has no row rank_missing");
    is_rank(w.main_rank, "world.main_rank");
    is_rank(w.slowest_rank, "world.slowest_rank");
    for (size_t i = 0; i < d.ranks.size(); ++i)
      if (d.ranks[i].rank == w.main_rank) main = &d.ranks[i], main_place = fmt::format("ranks[{}], which is main_rank", i);
    for (size_t i = 0; i < d.lanes.size(); ++i) is_rank(d.lanes[i].rank, fmt::format("lanes[{}].rank", i));
  }

  void rows() const {
    for (size_t i = 0; i < d.ranks.size(); ++i) {
      const RankRow& r = d.ranks[i];
      const std::string place = fmt::format("ranks[{}].", i);
      if (r.work_ns && r.exposed_ns && r.idle_ns)
        same(r.device_ns, *r.work_ns + *r.exposed_ns + *r.idle_ns, place + "device_ns", "work_ns + exposed_ns + idle_ns");
      if (r.exposed_wait_ns) at_most(*r.exposed_wait_ns, r.exposed_ns, place + "exposed_wait_ns", "it is a part of exposed_ns");
    }
  }

  void world() const {
    const WorldSection& w = d.world;
    if (w.tokens_per_s && w.size) {
      if (!d.timing.tokens_per_s) fail("timing.tokens_per_s", "is missing, expected that of one rank: world.tokens_per_s is there");
      same(w.tokens_per_s, *d.timing.tokens_per_s * static_cast<double>(*w.size), "world.tokens_per_s", "world.size x timing.tokens_per_s");
    }
    exposed_parts(w, w.exposed_ns, "world.");
    if (w.exposed_ns && w.hidden_ns)
      same(w.communication_ns, *w.exposed_ns + *w.hidden_ns, "world.communication_ns", "exposed_ns + hidden_ns");
    if (!main) return;
    same(w.exposed_ns, main->exposed_ns, "world.exposed_ns", "that of " + main_place);
    same(w.hidden_ns, main->hidden_ns, "world.hidden_ns", "that of " + main_place);
    same(w.exposed_wait_ns, main->exposed_wait_ns, "world.exposed_wait_ns", "that of " + main_place);
  }

  void passes() const {
    std::map<std::string, double> own;
    for (const PassRow& p : d.passes) own[p.name] = p.time_ns;
    std::set<std::pair<int64_t, std::string>> seen;
    size_t of_main = 0;
    for (size_t i = 0; i < d.rank_passes.size(); ++i) {
      const RankPassRow& p = d.rank_passes[i];
      const std::string place = fmt::format("rank_passes[{}]", i);
      is_rank(p.rank, place + ".rank");
      if (!seen.emplace(p.rank, p.pass).second)
        fail(place, fmt::format("found {} of rank {} a second time, expected each once", p.pass, p.rank));
      for (const RankRow& r : d.ranks)
        if (r.rank == p.rank && p.pass == "communication")
          same(p.hidden_ns, r.hidden_ns, place + ".hidden_ns", fmt::format("that of rank {} in ranks", r.rank));
      if (!main || p.rank != main->rank) continue;
      ++of_main;
      const auto row = own.find(p.pass);
      if (row == own.end()) fail(place + ".pass", fmt::format("found '{}', expected one of passes[]: its rank is main_rank", p.pass));
      check_number(p.time_ns, row->second, source, place + ".time_ns", "that of passes[], which are main_rank's");
    }
    if (main && main->device_ns && of_main != own.size())
      fail("rank_passes", fmt::format("found {} rows of rank {}, expected {}: the rows of passes, which are main_rank's", of_main,
                                      main->rank, own.size()));
  }

  void collectives() const {
    const WorldSection& w = d.world;
    // Ranks whose steps differ have no collectives in common.
    const bool told = !is_missing(d, "collectives_not_joined") && !is_missing(d, "rank_not_traced");
    if (told || !d.collectives.empty()) count(w.collectives, d.collectives.size(), "world.collectives", "the rows of collectives");
    double bytes = 0;
    bool sized = true;
    for (size_t i = 0; i < d.collectives.size(); ++i) {
      const CollectiveRow& c = d.collectives[i];
      count(c.sequence, i, fmt::format("collectives[{}].sequence", i), "its place in the list");
      is_rank(c.last_rank, fmt::format("collectives[{}].last_rank", i));
      sized = sized && c.bytes;
      bytes += static_cast<double>(c.bytes.value_or(0));
    }
    if (sized && !d.collectives.empty()) same(w.bytes, bytes, "world.bytes", "the sum of collectives[].bytes");
    std::set<std::pair<int64_t, int64_t>> seen;
    double wait = 0, transfer = 0, drain = 0;
    for (size_t i = 0; i < d.collective_ranks.size(); ++i) {
      const CollectiveRankRow& c = d.collective_ranks[i];
      const std::string place = fmt::format("collective_ranks[{}]", i);
      is_rank(c.rank, place + ".rank");
      if (c.sequence >= static_cast<int64_t>(d.collectives.size()))
        fail(place + ".sequence", fmt::format("found {}, expected one of the {} in collectives[]", c.sequence, d.collectives.size()));
      if (!seen.emplace(c.sequence, c.rank).second)
        fail(place, fmt::format("found collective {} of rank {} a second time, expected each once", c.sequence, c.rank));
      exposed_parts(c, c.exposed_ns, place + ".");
      if (!main || c.rank != main->rank) continue;
      wait += c.exposed_wait_ns.value_or(0), transfer += c.exposed_transfer_ns.value_or(0), drain += c.exposed_drain_ns.value_or(0);
    }
    if (const size_t all = d.collectives.size() * d.ranks.size(); d.collective_ranks.size() != all)
      fail("collective_ranks", fmt::format("found {} rows, expected {}: each collective on each rank", d.collective_ranks.size(), all));
    if (!main || d.collectives.empty()) return;
    const std::string of_main = "the sum over collective_ranks[] of main_rank";
    same(w.exposed_wait_ns, wait, "world.exposed_wait_ns", of_main);
    same(w.exposed_transfer_ns, transfer, "world.exposed_transfer_ns", of_main);
    same(w.exposed_drain_ns, drain, "world.exposed_drain_ns", of_main);
  }
};

}  // namespace

void check_number(double found, double expected, const std::string& source, std::string_view place, std::string_view meaning) {
  if (!(std::abs(found - expected) <= slack_of(expected)))
    throw stepscope::InputError(fmt::format("{}: {}: found {}, expected {}: {}", source, place, found, expected, meaning));
}

void check_ranks(const ProfileDocument& document, const std::string& source) {
  RankChecks checks{document, source, nullptr, ""};
  checks.who();
  checks.rows();
  checks.world();
  checks.passes();
  checks.collectives();
}

}  // namespace profiler
