#include "profiler/report/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "profiler/document/missing_rows.h"
#include "profiler/report/cells.h"
#include "profiler/report/facts.h"
#include "profiler/report/names.h"
#include "profiler/report/rank_views.h"
#include "profiler/report/text_table.h"
#include "profiler/report/views.h"

namespace profiler {
namespace {

// Parts in a row, broken between parts, never inside one.
std::string joined(const std::vector<std::string>& parts, const std::string& separator, size_t width) {
  std::string out;
  size_t column = 0;
  for (const std::string& part : parts) {
    if (column > 0 && column + separator.size() + display_width(part) > width) {
      out += "\n  ";
      column = 2;
    } else if (column > 0) {
      out += separator;
      column += separator.size();
    }
    // One part may be longer than the line: a program's command, a device's name.
    const std::string shown = elide(stepscope::printable(part), width - std::min(column, width));
    out += shown;
    column += display_width(shown);
  }
  return out;
}

std::string number_of(int64_t n, const char* one, const char* several) { return fmt::format("{} {}", n, n == 1 ? one : several); }

std::string step_line(const ProfileDocument& d, size_t width) {
  if (!d.timing.step_time_ns.median) return "";
  std::vector<std::string> parts;
  for (const Fact& f : headline(d))
    parts.push_back((f.before.empty() ? "" : f.before + " ") + f.value + (f.after.empty() ? "" : " " + f.after));
  return joined(parts, "   ", width);
}

// A rule may let one kernel stand for several layers; documents of before 2026-11-29 do not say how many kernels there were.
std::string measured_words(const ProfileDocument& d) {
  const int64_t shown = d.totals.launches.value_or(0);
  if (!d.collection.measured_kernels && is_missing(d, "launches_multiplied"))
    return number_of(shown, "launch", "launches") + ", several of one kernel, measured alone by Nsight Compute";
  const int64_t measured = d.collection.measured_kernels.value_or(shown);
  return number_of(measured, "kernel", "kernels") + ", each measured alone by Nsight Compute" +
         (shown > measured ? fmt::format(", shown as {} launches", shown) : "");
}

std::string how_measured(const ProfileDocument& d, size_t width) {
  std::vector<std::string> parts;
  if (measured_alone(d)) parts.push_back(measured_words(d));
  if (d.collection.producer == "nsys") parts.push_back("traced by Nsight Systems");
  if (d.run.timed_steps.value_or(0) > 0) parts.push_back(fmt::format("{} timed steps without collector", *d.run.timed_steps));
  if (d.collection.traced_steps > 0 && d.collection.shown_step) {
    std::string traced = fmt::format("{} traced", d.collection.traced_steps);
    if (d.collection.traced_overhead_pct) traced += fmt::format(" ({:+.1f}%)", *d.collection.traced_overhead_pct);
    parts.push_back(traced);
  }
  if (d.collection.counted_steps > 0 && d.collection.shown_step)
    parts.push_back(fmt::format("{} counted{}", d.collection.counted_steps, d.collection.graph_launches ? " without the CUDA graph" : ""));
  if (d.collection.collecting_ns) parts.push_back(fmt::format("counters took {:.1f} s", *d.collection.collecting_ns / 1e9));
  return joined(parts, ", ", width);
}

// Steps of a program without ranges of ours: no kernel has a pass, so the passes would be one row "unattributed".
bool kernels_first(const ProfileDocument& d) { return d.passes.empty() && d.collection.shown_step && !d.kernels.empty(); }

std::string kernels_first_line(const ProfileDocument& d) {
  const double step = d.totals.time_ns.value_or(0), idle = d.totals.idle_ns.value_or(0);
  std::string text = fmt::format("On the device one step took {} ms", milliseconds(step));
  if (d.totals.idle_ns && step > 0)
    text += fmt::format(": busy {} ms ({}%), idle {} ms ({}%)", milliseconds(step - idle), percent((step - idle) / step * 100),
                        milliseconds(idle), percent(idle / step * 100));
  return text + fmt::format("; {}, {} copies and memsets.", number_of(d.totals.launches.value_or(0), "kernel launch", "kernel launches"),
                            d.totals.copies.value_or(0));
}

std::string missing_text(const ProfileDocument& d, const TableOptions& o) {
  std::string out;
  for (const MissingRow& m : d.missing) {
    const std::string style = m.severity == "severe" ? "31" : m.severity == "notice" ? "33" : "2";
    std::string head = stepscope::printable(fmt::format("{} {}", m.severity, m.name));
    if (m.count != 1) head += fmt::format(" x {}", m.count);
    std::string text = head + ": ";
    if (!m.detail.empty()) text += m.detail + ". ";
    text = wrapped(text + m.advice, o.width, 2);
    out += styled(text.substr(0, head.size()), style, o.color) + text.substr(std::min(head.size(), text.size())) + "\n";
  }
  return out;
}

int64_t sum_launches(const ProfileDocument& d, int64_t Measured::*member) {
  int64_t sum = 0;
  for (const KernelRow& k : d.kernels) sum += k.*member;
  return sum;
}

std::string second_text(const ProfileDocument& d, const TableOptions& o) {
  const SecondTable t = second_table(d, o.by, Output::terminal, o.top);
  if (!t.instead.empty()) return wrapped(t.instead, o.width, 0) + "\n\n";
  return t.view.columns.empty() ? "" : terminal_text(t.view, o.width, o.color) + "\n";
}

// The passes; one sentence where there are none.
std::string first_table(const ProfileDocument& d, const TableOptions& o) {
  if (d.totals.time_ns && kernels_first(d)) return wrapped(kernels_first_line(d), o.width, 0) + "\n\n";
  if (d.totals.time_ns && (d.collection.shown_step || !d.passes.empty()))
    return terminal_text(pass_view(d, Output::terminal), o.width, o.color) + "\n";
  std::string busy;
  if (d.timeline.busy_ns)
    busy = fmt::format("; device busy {} ms, idle {} ms", milliseconds(d.timeline.busy_ns), milliseconds(d.timeline.idle_ns));
  else if (measured_alone(d))
    busy = fmt::format("; {} ms in all", milliseconds(d.totals.time_ns));
  const int64_t launches = d.totals.launches.value_or(sum_launches(d, &KernelRow::launches));
  const int64_t copies = d.totals.copies.value_or(sum_launches(d, &KernelRow::copies));
  return wrapped(fmt::format("{}, {} copies and memsets{}", number_of(launches, "kernel launch", "kernel launches"), copies, busy), o.width,
                 0) +
         "\n\n";
}

// What a run of several ranks has besides.
std::string rank_tables(const ProfileDocument& d, const TableOptions& o) {
  if (d.ranks.empty()) return "";
  std::string out = terminal_text(rank_view(d), o.width, o.color) + "\n";
  for (const std::string& sentence : rank_sentences(d)) out += wrapped(sentence, o.width, 0) + "\n";
  out += "\n";
  if (!d.collectives.empty()) out += terminal_text(collective_view(d, Output::terminal, o.top), o.width, o.color) + "\n";
  return out;
}

}  // namespace

SecondTable second_table(const ProfileDocument& d, TableBy by, Output output, size_t top) {
  const auto none = [](const char* what, const std::string& why) { return SecondTable{{}, fmt::format("No {}: {}.", what, why)}; };
  const char* no_ranges = "no launch of this document has a pass and an op (docs/metrics.md, unattributed_kernels)";
  switch (by) {
    case TableBy::pass:
      return d.passes.empty() ? none("passes", no_ranges) : SecondTable();
    case TableBy::kernel:
      return d.kernels.empty() ? none("kernels", "none was traced") : SecondTable{kernel_view(d, output, top), ""};
    case TableBy::op:
      return d.ops.empty() ? none("ops", no_ranges) : SecondTable{op_view(d, output, top), ""};
    case TableBy::layer:
      return d.layers.empty() ? none("layers", why_empty(d, "no launch of this document belongs to a layer"))
                              : SecondTable{layer_view(d, output, top), ""};
  }
  return {};
}

std::string table_text(const ProfileDocument& d, const TableOptions& o) {
  std::string out = joined(what_ran(d), " | ", o.width) + "\n";
  if (const std::string line = step_line(d, o.width); !line.empty()) out += styled(line, "1", o.color) + "\n";
  if (const std::string line = how_measured(d, o.width); !line.empty()) out += line + "\n";
  if (const View states = state_view(d, Output::terminal); !states.rows.empty()) out += "\n" + terminal_text(states, o.width, o.color);
  if (d.totals.time_ns || !d.kernels.empty()) {
    out += "\n" + first_table(d, o) + rank_tables(d, o) + second_text(d, o);
    out += wrapped(legend(d), o.width, 0) + "\n";
  }
  if (!d.missing.empty()) out += "\n" + styled("missing", "1", o.color) + "\n" + missing_text(d, o);
  return out;
}

}  // namespace profiler
