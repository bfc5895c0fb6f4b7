#include "profiler/report/markdown.h"

#include <fmt/format.h>

#include "base/text.h"
#include "profiler/report/cells.h"
#include "profiler/report/facts.h"
#include "profiler/report/rank_views.h"
#include "profiler/report/views.h"

namespace profiler {

using stepscope::markdown_escaped;

std::string markdown_text(const ProfileDocument& d, size_t top, TableBy by) {
  const std::string ran = fmt::format("{}", fmt::join(what_ran(d), ", "));
  std::string out = "### Profile" + (ran.empty() ? "" : ": " + markdown_escaped(ran)) + "\n\n";
  bool first = true;
  for (const Fact& f : headline(d)) {
    const std::string text = (f.before.empty() ? "" : f.before + " ") + f.value;
    out += (first ? "**" + text + "**" : ", " + text) + (f.after.empty() ? "" : " " + markdown_escaped(f.after));
    first = false;
  }
  if (!first) out += "\n\n";
  if (const View states = state_view(d, Output::markdown); !states.rows.empty()) out += markdown_text(states) + "\n";
  if (!d.passes.empty()) out += markdown_text(pass_view(d, Output::markdown)) + "\n";
  if (!d.ranks.empty()) {
    out += markdown_text(rank_view(d)) + "\n";
    for (const std::string& sentence : rank_sentences(d)) out += markdown_escaped(sentence) + "\n";
    out += "\n";
    if (!d.collectives.empty()) out += markdown_text(collective_view(d, Output::markdown, top)) + "\n";
  }
  if (d.passes.empty() && d.collection.shown_step && d.totals.time_ns && *d.totals.time_ns > 0 && d.totals.idle_ns)
    out += fmt::format("One step on the device: {} ms, idle {} ms of it ({}%).\n\n", milliseconds(d.totals.time_ns),
                       milliseconds(d.totals.idle_ns), percent(*d.totals.idle_ns / *d.totals.time_ns * 100));
  if (d.totals.time_ns || !d.kernels.empty()) {
    const SecondTable t = second_table(d, by, Output::markdown, top);
    if (!t.instead.empty())
      out += markdown_escaped(t.instead) + "\n";
    else if (!t.view.columns.empty())
      out += markdown_text(t.view);
  }
  if (!d.passes.empty() || !d.kernels.empty()) out += "\n" + markdown_escaped(legend(d)) + "\n";
  if (!d.missing.empty()) out += "\nMissing:\n";
  for (const MissingRow& m : d.missing)
    out += fmt::format("- **{}** {}{}: {}{}\n", m.severity, markdown_escaped(m.name), m.count > 1 ? fmt::format(" × {}", m.count) : "",
                       m.detail.empty() ? "" : markdown_escaped(m.detail) + ". ", markdown_escaped(m.advice));
  out += "\n<details><summary>Environment</summary>\n\n";
  for (const auto& [what, text] : environment_facts(d)) out += fmt::format("- {}: {}\n", markdown_escaped(what), markdown_escaped(text));
  return out + "\n</details>\n";
}

}  // namespace profiler
