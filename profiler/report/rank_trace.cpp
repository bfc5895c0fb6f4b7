#include "profiler/report/rank_trace.h"

#include <algorithm>
#include <map>
#include <set>

#include "profiler/report/names.h"
#include "profiler/report/trace_events.h"

namespace profiler {
namespace {

using trace::Json, trace::kNsPerUs, trace::metadata, trace::slice;

constexpr int64_t kCollectiveTrack = 0;

std::string collective_name(const CollectiveRow& c) {
  std::string name = c.kind.value_or("collective");
  if (c.op) name = *c.op;
  if (c.bucket) name += " " + std::to_string(*c.bucket);
  return name;
}

// The document's times begin with main_rank's step, and another rank may have begun before it. Perfetto drops what lies before 0.
double first_begin(const ProfileDocument& d) {
  double first = 0;
  for (const LaneRow& l : d.lanes) first = std::min(first, l.start_ns);
  for (const CollectiveRankRow& c : d.collective_ranks) first = std::min(first, c.start_ns);
  return first;
}

struct LaneSlice {
  const LaneRow* row;
  double begin_ns, end_ns;
};

void add_track(Json& events, const std::vector<LaneSlice>& slices, int64_t rank, int64_t track, double zero_ns) {
  for (const LaneSlice& s : slices) {
    const LaneRow& l = *s.row;
    Json e = slice(short_kernel_name(l.name), l.activity, s.begin_ns - zero_ns, s.end_ns - zero_ns, rank, track);
    Json& a = e["args"];
    a["name"] = l.name;
    if (l.pass) a["pass"] = *l.pass;
    if (l.layer) a["layer"] = *l.layer;
    if (l.op) a["op"] = *l.op;
    events.push_back(std::move(e));
  }
}

void add_collectives(Json& events, const ProfileDocument& d, double zero_ns) {
  std::map<int64_t, const CollectiveRow*> rows;
  for (const CollectiveRow& c : d.collectives) rows[c.sequence] = &c;
  std::map<int64_t, double> last_begin;
  for (const CollectiveRankRow& c : d.collective_ranks)
    if (const auto row = rows.find(c.sequence); row != rows.end() && row->second->last_rank == c.rank)
      last_begin[c.sequence] = c.start_ns - zero_ns;
  for (const CollectiveRankRow& c : d.collective_ranks) {
    const auto row = rows.find(c.sequence);
    if (row == rows.end()) continue;
    Json e = slice(collective_name(*row->second), "collective", c.start_ns - zero_ns, c.end_ns - zero_ns, c.rank, kCollectiveTrack);
    Json& a = e["args"];
    a["sequence"] = c.sequence;
    if (row->second->bytes) a["bytes"] = *row->second->bytes;
    a["exposed_ns"] = c.exposed_ns;
    a["hidden_ns"] = c.hidden_ns;
    if (c.queue_ns) a["queue_ns"] = *c.queue_ns;
    if (c.wait_ns) a["wait_ns"] = *c.wait_ns;
    if (c.transfer_ns) a["transfer_ns"] = *c.transfer_ns;
    if (c.drain_ns) a["drain_ns"] = *c.drain_ns;
    // Slices of one track must not overlap without nesting: collectives that run at once would. Asynchronous events may.
    e["ph"] = "b";
    e["id"] = c.rank * 1'000'000 + c.sequence;
    e.erase("dur");
    Json end = {{"name", e["name"]}, {"cat", "collective"},     {"ph", "e"},    {"ts", (c.end_ns - zero_ns) / kNsPerUs},
                {"pid", c.rank},     {"tid", kCollectiveTrack}, {"id", e["id"]}};
    events.push_back(std::move(e));
    events.push_back(std::move(end));
    if (const auto arrival = last_begin.find(c.sequence); arrival != last_begin.end())
      events.push_back({{"name", "last rank begins"},
                        {"cat", "collective"},
                        {"ph", "i"},
                        {"s", "p"},
                        {"ts", arrival->second / kNsPerUs},
                        {"pid", c.rank},
                        {"tid", kCollectiveTrack}});
  }
}

}  // namespace

std::string rank_trace_text(const ProfileDocument& d) {
  Json events = Json::array();
  const double zero_ns = first_begin(d);
  std::map<int64_t, std::map<int64_t, std::vector<LaneSlice>>> streams;
  for (const LaneRow& l : d.lanes) streams[l.rank][l.stream].push_back({&l, l.start_ns, l.start_ns + l.shown_ns});
  for (const RankRow& r : d.ranks) {
    const std::string name = "rank " + std::to_string(r.rank) + (r.host ? " on " + *r.host : "");
    events.push_back(metadata("process_name", r.rank, std::nullopt, "name", name));
    events.push_back(metadata("process_sort_index", r.rank, std::nullopt, "sort_index", r.rank));
    events.push_back(metadata("thread_name", r.rank, kCollectiveTrack, "name", "collectives"));
    for (const auto& [stream, slices] : streams[r.rank]) {
      const auto tracks = trace::tracks_of(slices);
      for (size_t i = 0; i < tracks.size(); ++i)
        add_track(events, tracks[i], r.rank, trace::add_stream_track(events, r.rank, stream, i, "stream " + std::to_string(stream)),
                  zero_ns);
    }
  }
  add_collectives(events, d, zero_ns);
  Json about;
  about["command"] = d.run.command;
  about["clock"] = d.world.clock.value_or("none");
  if (d.world.clock_uncertainty_ns) about["clock_uncertainty_ns"] = *d.world.clock_uncertainty_ns;
  if (zero_ns < 0) about["main_rank_begins_us"] = -zero_ns / kNsPerUs;
  return trace::text(std::move(events), std::move(about));
}

}  // namespace profiler
