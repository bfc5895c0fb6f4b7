#include "profiler/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "profiler/report/facts.h"
#include "profiler/report/rank_views.h"
#include "profiler/report/views.h"

namespace profiler {
namespace {

using Json = nlohmann::ordered_json;

// A step launches few kernels many times: each text stands once in the page, cells are numbers into the list.
class Texts {
 public:
  size_t at(const std::string& text) {
    const auto [found, is_new] = places_.try_emplace(text, list_.size());
    if (is_new) list_.push_back(text);
    return found->second;
  }
  const Json& list() const { return list_; }

 private:
  std::map<std::string, size_t> places_;
  Json list_ = Json::array();
};

// The place of its text; with the number that it sorts by, and the place of the full name, where it has them.
Json cell_json(const ViewCell& cell, Texts& texts) {
  Json j = texts.at(cell.text);
  if (!cell.full.empty()) return {j, Json(), texts.at(cell.full)};
  return cell.number ? Json{j, *cell.number} : j;
}

Json table(const View& view, const std::string& caption, Texts& texts) {
  Json j{{"caption", caption}, {"columns", Json::array()}, {"rows", Json::array()}, {"notes", view.notes}};
  for (const ViewColumn& c : view.columns) j["columns"].push_back({{"title", c.title}, {"text", c.text}, {"field", c.field}});
  for (const ViewRow& row : view.rows) {
    Json cells = Json::array();
    for (const ViewCell& cell : row.cells) cells.push_back(cell_json(cell, texts));
    j["rows"].push_back(std::move(cells));
    if (row.kind == ViewRow::Kind::sum) j["sum"] = j["rows"].size() - 1;
  }
  return j;
}

Json missing(const ProfileDocument& d) {
  Json list = Json::array();
  for (const MissingRow& m : d.missing)
    list.push_back({{"severity", m.severity},
                    {"name", m.name + (m.count > 1 ? " × " + std::to_string(m.count) : "")},
                    {"text", (m.detail.empty() ? "" : m.detail + ". ") + m.advice}});
  return list;
}

std::string why_no_steps(const ProfileDocument& d) {
  return d.collection.producer == "ncu" || d.collection.producer == "nsys"
             ? "The report of another tool: it has no steps that ran without a collector."
             : "No step was timed without a collector.";
}

std::string why_no_timeline(const ProfileDocument& d) {
  return d.collection.producer == "ncu" ? "Nsight Compute runs kernels one at a time: there is no timeline."
                                        : "No launch has a start time.";
}

std::string why_no_roofline(const ProfileDocument& d) {
  return d.ceilings.copy_bytes_per_s ? "No kernel has DRAM counters." : "This device's ceilings were not measured, so there is no roof.";
}

std::string kernels_caption(const ProfileDocument& d) {
  const bool floors = std::any_of(d.kernels.begin(), d.kernels.end(), [](const KernelRow& k) { return k.headroom_ns.has_value(); });
  return std::string("Click a title to sort.") +
         (floors ? " Headroom: ms above the time that the kernel's own traffic and work need at the measured ceilings." : "");
}

// The rows of the timeline, one for each stream, and which of them each launch is drawn in. CUPTI numbers the streams of every device anew.
Json lanes(const ProfileDocument& d) {
  const auto is_drawn = [](const LaunchRow& l) { return l.start_ns && l.shown_ns; };
  std::map<std::pair<int64_t, int64_t>, size_t> rows;  // by device and stream
  for (const LaunchRow& l : d.launches)
    if (is_drawn(l)) rows[{l.device, l.stream}];
  const bool several_devices = !rows.empty() && rows.begin()->first.first != rows.rbegin()->first.first;
  Json names = Json::array(), of_launch = Json::array();
  for (auto& [place, row] : rows) {
    row = names.size();
    names.push_back((several_devices ? fmt::format("device {}, ", place.first) : "") + fmt::format("stream {}", place.second));
  }
  for (const LaunchRow& l : d.launches) of_launch.push_back(is_drawn(l) ? Json(rows.at({l.device, l.stream})) : Json());
  return {{"names", names}, {"of_launch", of_launch}};
}

}  // namespace

std::string page_json(const ProfileDocument& d) {
  Texts texts;
  Json j;
  j["what"] = what_ran(d);
  j["headline"] = Json::array();
  std::vector<Fact> facts = headline(d);
  const std::vector<Fact> more = device_facts(d);
  facts.insert(facts.end(), more.begin(), more.end());
  for (const Fact& f : facts)
    j["headline"].push_back({{"value", f.value}, {"words", f.before + (f.before.empty() || f.after.empty() ? "" : " ") + f.after}});
  Json& tables = j["tables"];
  tables["passes"] = table(pass_view(d, Output::page), legend(d), texts);
  tables["states"] = table(state_view(d, Output::page), "Steps before and behind the settling of clock and power (docs/metrics.md)", texts);
  tables["steps"] = table(step_view(d), "Steps without a collector", texts);
  tables["kernels"] = table(kernel_view(d, Output::page, d.kernels.size()), kernels_caption(d), texts);
  tables["launches"] = table(launch_view(d), "Launches of the step shown", texts);
  j["lanes"] = lanes(d);
  if (!d.ranks.empty()) {
    tables["ranks"] = table(rank_view(d), "Each rank; the sections above are those of the median one", texts);
    tables["collectives"] =
        table(collective_view(d, Output::page, d.collectives.size()), "Collectives of the step shown, over all ranks", texts);
    j["ranks"] = rank_sentences(d);
  }
  j["sentences"] = {{"steps", steps_sentence(d)},        {"no_steps", why_no_steps(d)},      {"timeline", timeline_sentence(d)},
                    {"no_timeline", why_no_timeline(d)}, {"ceilings", ceilings_sentence(d)}, {"no_roofline", why_no_roofline(d)}};
  j["missing"] = missing(d);
  j["environment"] = environment_facts(d);
  j["texts"] = texts.list();
  return stepscope::json_text(j, -1);
}

}  // namespace profiler
