#include "profiler/report/html.h"

#include <algorithm>

#include "profiler/document/json.h"
#include "profiler/report/names.h"
#include "profiler/report/page.h"
#include "profiler/report/page_files.h"

namespace profiler {
namespace {

// Every placeholder stands once in the page and is looked for in the page alone, never in what was put in before.
std::string filled(std::string_view page, std::initializer_list<std::pair<std::string_view, std::string_view>> parts) {
  std::string out;
  for (const auto& [placeholder, text] : parts) {
    const size_t at = page.find(placeholder);
    out += page.substr(0, at);
    out += text;
    page.remove_prefix(at + placeholder.size());
  }
  return out + std::string(page);
}

}  // namespace

// Inside a script element only "</" and "<!--" end anything, and both begin with '<', which JSON may spell \u003c. The two line separators are
// line ends to older scripts.
std::string for_script_element(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '<') {
      out += "\\u003c";
    } else if (json.compare(i, 3, "\xe2\x80\xa8") == 0 || json.compare(i, 3, "\xe2\x80\xa9") == 0) {
      out += json[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += json[i];
    }
  }
  return out;
}

bool has_charts() { return !page::charts().empty(); }

std::string html_text(const ProfileDocument& d) {
  // The page draws so many; without a limit a long step would make a page of many megabytes.
  constexpr size_t kMostLaunches = 2500;
  ProfileDocument shown = d;
  if (shown.launches.size() > kMostLaunches) {
    std::stable_sort(shown.launches.begin(), shown.launches.end(),
                     [](const LaunchRow& a, const LaunchRow& b) { return a.shown_ns.value_or(0) > b.shown_ns.value_or(0); });
    shown.launches.resize(kMostLaunches);
  }
  if (shown.lanes.size() > kMostLaunches * std::max<size_t>(1, shown.ranks.size())) {
    std::stable_sort(shown.lanes.begin(), shown.lanes.end(), [](const LaneRow& a, const LaneRow& b) { return a.shown_ns > b.shown_ns; });
    shown.lanes.resize(kMostLaunches * std::max<size_t>(1, shown.ranks.size()));
  }
  const std::string view = page_json(shown);
  for (LaneRow& l : shown.lanes) l.name = short_kernel_name(l.name);
  // The timeline needs when and where; names are in the view, the rest of a launch is in the document.
  for (LaunchRow& l : shown.launches) {
    l.path.clear();
    l.name.clear();
    static_cast<Numbers&>(l) = {};
    l.other_counters.reset();
    for (Number LaunchRow::*unused :
         {&LaunchRow::time_ns, &LaunchRow::share_ns, &LaunchRow::counted_time_ns, &LaunchRow::floor_ns, &LaunchRow::headroom_ns})
      (l.*unused).reset();
  }
  const std::string charts = has_charts() ? "<script>" + std::string(page::charts()) + "</script>" : "";
  return filled(page::html(), {{"@CSS@", page::css()},
                               {"@LAUNCHES@", std::to_string(d.launches.size())},
                               {"@LANES@", std::to_string(d.lanes.size())},
                               {"@DATA@", for_script_element(to_json(shown))},
                               {"@VIEW@", for_script_element(view)},
                               {"@CHARTS@", charts},
                               {"@SCRIPT@", page::script()}});
}

}  // namespace profiler
