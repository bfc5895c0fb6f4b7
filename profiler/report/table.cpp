#include "profiler/report/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "profiler/report/names.h"
#include "profiler/report/text_table.h"

namespace profiler {
namespace {

using Align = TextTable::Align;

// ---- numbers for eyes
// ---------------------------------------------------------------------------------------------
std::string ms(Number ns) {
  if (!ns) return "-";
  const double v = *ns / 1e6;
  return fmt::format("{:.{}f}", v, v >= 1000 ? 1 : v >= 10 ? 2 : 3);
}
std::string percent(Number pct) { return pct ? fmt::format("{:.1f}", *pct) : "-"; }
std::string gigabytes(Number bytes_per_s) { return bytes_per_s ? fmt::format("{:.0f}", *bytes_per_s / 1e9) : "-"; }
std::string in_brackets(Number pct) { return pct ? fmt::format("({:.0f}%)", *pct) : ""; }
std::string word(const Text& t) { return t.value_or("-"); }
std::string thousands(double v) {
  return v >= 1e6 ? fmt::format("{:.2f}M", v / 1e6) : v >= 1e4 ? fmt::format("{:.1f}k", v / 1e3) : fmt::format("{:.0f}", v);
}

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
    const std::string shown = elide(part, width - std::min(column, width));
    out += shown;
    column += display_width(shown);
  }
  return out;
}

// ---- header
// ---------------------------------------------------------------------------------------------------------
std::string what_ran(const ProfileDocument& d, size_t width) {
  std::vector<std::string> parts;
  if (d.environment.gpu)
    parts.push_back(*d.environment.gpu);
  else if (d.run.device)
    parts.push_back(*d.run.device);
  if (d.run.trainer) parts.push_back(*d.run.trainer + (d.run.matmul && *d.run.trainer == "fp32" ? " (matmul " + *d.run.matmul + ")" : ""));
  if (d.run.layers && d.run.channels) parts.push_back(fmt::format("{} layers x {} channels", *d.run.layers, *d.run.channels));
  if (d.run.batch_size && d.run.seq_len) {
    std::string shape = fmt::format("B {} T {}", *d.run.batch_size, *d.run.seq_len);
    if (d.run.accumulation.value_or(1) > 1) shape += fmt::format(" x {}", *d.run.accumulation);
    parts.push_back(shape);
  }
  if (!d.run.trainer && !d.run.command.empty()) parts.push_back(elide(d.run.command, 60));
  if (d.environment.sm_clock_mhz_median)
    parts.push_back(fmt::format("SM {:.0f} MHz, {:.0f} W", *d.environment.sm_clock_mhz_median, d.environment.power_w_median.value_or(0)));
  return joined(parts, " | ", width);
}

std::string step_line(const ProfileDocument& d, size_t width) {
  const StepTime& t = d.timing.step_time_ns;
  if (!t.median) return "";
  std::vector<std::string> parts;
  std::string step = fmt::format("step {} ms", ms(t.median));
  if (t.interval_low) step += fmt::format(" [{}, {}]", ms(t.interval_low), ms(t.interval_high));
  parts.push_back(step);
  if (d.timing.tokens_per_s) parts.push_back(fmt::format("{} tokens/s", thousands(*d.timing.tokens_per_s)));
  if (d.timing.of_matmul_ceiling_pct)
    parts.push_back(
        fmt::format("{:.1f}% of the measured {} matmul ceiling", *d.timing.of_matmul_ceiling_pct, word(d.timing.matmul_ceiling)));
  return joined(parts, "   ", width);
}

// Kernels that Nsight Compute ran one at a time: there is no idle time between them to speak of.
bool alone(const ProfileDocument& d) { return d.collection.producer == "ncu"; }

std::string how_measured(const ProfileDocument& d, size_t width) {
  std::vector<std::string> parts;
  if (alone(d)) parts.push_back(fmt::format("{} kernels, each measured alone by Nsight Compute", d.totals.launches.value_or(0)));
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
  std::string text = fmt::format("On the device one step took {} ms", ms(step));
  if (d.totals.idle_ns && step > 0)
    text += fmt::format(": busy {} ms ({}%), idle {} ms ({}%)", ms(step - idle), percent((step - idle) / step * 100), ms(idle),
                        percent(idle / step * 100));
  return text + fmt::format("; {} kernel launches, {} copies and memsets.", d.totals.launches.value_or(0), d.totals.copies.value_or(0));
}

// ---- tables
// -----------------------------------------------------------------------------------------------------------
TextTable pass_table(const ProfileDocument& d) {
  TextTable t({{"pass", Align::left},
               {"ms"},
               {"%"},
               {"GB/s", Align::right, false, 2},
               {"(max)", Align::right, false, 4},
               {"tensor%", Align::right, false, 3},
               {"headroom", Align::right, false, 1},
               {"top kernel", Align::left, true, 5}});
  const double step = d.totals.time_ns.value_or(0);
  const auto share = [&](Number v) { return v && step > 0 ? Number(*v / step * 100) : std::nullopt; };
  // Without a work model (another tool's report, a foreign program) only the kernels' own floors are known; the two never mix.
  const bool of_kernels = !d.totals.headroom_ns;
  const auto headroom = [&](const PassRow& p) { return of_kernels ? p.kernel_headroom_ns : p.headroom_ns; };
  const Number all_headroom = of_kernels ? d.totals.kernel_headroom_ns : d.totals.headroom_ns;
  for (const PassRow& p : d.passes)
    t.row({p.name, ms(p.time_ns), percent(p.share_pct), gigabytes(p.dram_bytes_per_s), in_brackets(p.dram_of_ceiling_pct),
           tensor_cell(p.tensor_active_pct, p.tensor_instructions), ms(headroom(p)),
           p.top_kernel ? fmt::format("{} {}", ms(p.top_kernel_ns), short_kernel_name(*p.top_kernel)) : "-"});
  const Number unattributed = d.totals.unattributed_ns, idle = d.totals.idle_ns;
  t.row({"unattributed", ms(unattributed), percent(share(unattributed)), "", "", "", "", ""},
        unattributed.value_or(0) > 0 && !d.passes.empty() ? "33" : "2");
  if (idle || !alone(d)) t.row({"idle", ms(idle), percent(share(idle)), "", "", "", ms(idle), ""});
  if (d.totals.passes_ns && unattributed && (idle || alone(d))) {
    const Number sum = *d.totals.passes_ns + *unattributed + idle.value_or(0);
    t.row({"sum", ms(sum), percent(share(sum)), gigabytes(d.totals.dram_bytes_per_s), in_brackets(d.totals.dram_of_ceiling_pct),
           tensor_cell(d.totals.tensor_active_pct, d.totals.tensor_instructions),
           ms(all_headroom ? Number(*all_headroom + idle.value_or(0)) : std::nullopt), ""},
          "1");
    if (of_kernels && all_headroom) t.note("Headroom here is above the time that each kernel's own traffic and work need.");
    if (!alone(d))
      t.note(
          fmt::format("Rows sum to {} of {} ms ({:+.2f}%).", ms(sum), ms(d.totals.time_ns), d.totals.conservation_error_pct.value_or(0)));
  }
  return t;
}

struct Rest {
  size_t rows = 0;
  double time_ns = 0;
};

// The first `top` rows, and what the others have together.
template <class Row, class Add>
Rest first_rows(const std::vector<const Row*>& rows, size_t top, Add add) {
  Rest rest;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i < top)
      add(*rows[i]);
    else
      rest = {rest.rows + 1, rest.time_ns + rows[i]->time_ns};
  }
  return rest;
}

template <class Row>
std::vector<const Row*> by_time(const std::vector<Row>& rows) {
  std::vector<const Row*> list;
  for (const Row& r : rows) list.push_back(&r);
  std::stable_sort(list.begin(), list.end(), [](const Row* a, const Row* b) { return a->time_ns > b->time_ns; });
  return list;
}

std::string more(const Rest& rest, const char* what) { return fmt::format("{} more {}: {} ms", rest.rows, what, ms(rest.time_ns)); }

// `by_pass`: where each kernel runs. A program without passes has the share of the step there instead.
TextTable kernel_table(const ProfileDocument& d, size_t top, bool by_pass) {
  TextTable t({{"kernel", Align::left, true},
               by_pass ? TextTable::Column{"where", Align::left} : TextTable::Column{"%"},
               {"n", Align::right, false, 1},
               {"ms"},
               {"GB/s", Align::right, false, 3},
               {"(max)", Align::right, false, 5},
               {"tensor%", Align::right, false, 4},
               {"bound", Align::left, false, 2},
               {"headroom", Align::right, false, 1}});
  const Rest rest = first_rows(by_time(d.kernels), top, [&](const KernelRow& k) {
    t.row({short_kernel_name(k.name),
           !by_pass ? percent(k.share_pct)
           : k.pass ? place_words(*k.pass, k.op.value_or(""))
                    : "-",
           std::to_string(k.launches + k.copies), ms(k.time_ns), gigabytes(k.dram_bytes_per_s), in_brackets(k.dram_of_ceiling_pct),
           tensor_cell(k.tensor_active_pct, k.tensor_instructions), word(k.bound), ms(k.headroom_ns)});
  });
  if (rest.rows) t.note(more(rest, "kernels"));
  return t;
}

std::vector<std::string> floored_cells(const Floored& f, bool of_kernels) {
  return {std::to_string(f.launches + f.copies),
          ms(f.time_ns),
          percent(f.share_pct),
          gigabytes(f.dram_bytes_per_s),
          in_brackets(f.dram_of_ceiling_pct),
          tensor_cell(f.tensor_active_pct, f.tensor_instructions),
          word(f.bound),
          ms(of_kernels ? f.kernel_floor_ns : f.floor_ns),
          ms(of_kernels ? f.kernel_headroom_ns : f.headroom_ns)};
}

template <class Row, class Name>
TextTable floored_table(const std::vector<Row>& rows, const char* header, const char* plural, size_t top, bool of_kernels, Name name) {
  TextTable t({{header, Align::left, true},
               {"n", Align::right, false, 3},
               {"ms"},
               {"%"},
               {"GB/s", Align::right, false, 4},
               {"(max)", Align::right, false, 6},
               {"tensor%", Align::right, false, 5},
               {"bound", Align::left, false, 2},
               {"floor", Align::right, false, 4},
               {"headroom", Align::right, false, 1}});
  const Rest rest = first_rows(by_time(rows), top, [&](const Row& r) {
    std::vector<std::string> cells = floored_cells(r, of_kernels);
    cells.insert(cells.begin(), name(r));
    t.row(std::move(cells));
  });
  if (rest.rows) t.note(more(rest, plural));
  return t;
}

std::string missing_text(const ProfileDocument& d, const TableOptions& o) {
  std::string out;
  for (const MissingRow& m : d.missing) {
    const std::string style = m.severity == "severe" ? "31" : m.severity == "notice" ? "33" : "2";
    std::string head = fmt::format("{} {}", m.severity, m.name);
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

// A list that the document does not have is said in words: a header without rows looks like a mistake.
std::string second_table(const ProfileDocument& d, const TableOptions& o) {
  const auto none = [&](const char* what, const char* why) { return wrapped(fmt::format("No {}: {}.", what, why), o.width, 0) + "\n\n"; };
  const char* no_ranges = "no launch of this document has a pass and an op (docs/metrics.md, unattributed_kernels)";
  switch (o.by) {
    case TableBy::pass:
      return d.passes.empty() ? none("passes", no_ranges) : "";
    case TableBy::kernel:
      if (d.kernels.empty()) return none("kernels", "none was traced");
      return kernel_table(d, o.top, !d.passes.empty() || !d.totals.time_ns).text(o.width, o.color) + "\n";
    case TableBy::op:
      if (d.ops.empty()) return none("ops", no_ranges);
      return floored_table(d.ops, "op", "ops", o.top, !d.totals.headroom_ns, [](const OpRow& r) { return place_words(r.pass, r.op); })
                 .text(o.width, o.color) +
             "\n";
    case TableBy::layer:
      if (d.layers.empty()) return none("layers", "no launch of this document belongs to a layer");
      return floored_table(d.layers, "layer", "layers", o.top, !d.totals.headroom_ns,
                           [](const LayerRow& r) { return fmt::format("{} layer {}", place_words(r.pass, ""), r.layer); })
                 .text(o.width, o.color) +
             "\n";
  }
  return "";
}

}  // namespace

std::string table_text(const ProfileDocument& d, const TableOptions& o) {
  std::string out = what_ran(d, o.width) + "\n";
  if (const std::string line = step_line(d, o.width); !line.empty()) out += styled(line, "1", o.color) + "\n";
  if (const std::string line = how_measured(d, o.width); !line.empty()) out += line + "\n";
  if (d.totals.time_ns || !d.kernels.empty()) {
    out += "\n";
    if (d.totals.time_ns && kernels_first(d)) {
      out += wrapped(kernels_first_line(d), o.width, 0) + "\n\n";
    } else if (d.totals.time_ns && (d.collection.shown_step || !d.passes.empty())) {
      out += pass_table(d).text(o.width, o.color) + "\n";
    } else {
      std::string busy;
      if (d.timeline.busy_ns)
        busy = fmt::format("; device busy {} ms, idle {} ms", ms(d.timeline.busy_ns), ms(d.timeline.idle_ns));
      else if (alone(d))
        busy = fmt::format("; {} ms in all", ms(d.totals.time_ns));
      out += wrapped(fmt::format("{} kernel launches, {} copies and memsets{}",
                                 d.totals.launches.value_or(sum_launches(d, &KernelRow::launches)),
                                 d.totals.copies.value_or(sum_launches(d, &KernelRow::copies)), busy),
                     o.width, 0) +
             "\n\n";
    }
    out += second_table(d, o);
    out += wrapped(d.ceilings.copy_bytes_per_s ? "GB/s is DRAM traffic of kernels, (max) its share of this "
                                                 "device's measured ceiling, headroom the ms above the "
                                                 "floor (docs/metrics.md)."
                                               : "Times are per step; headroom and shares of ceilings need a "
                                                 "GPU whose ceilings were measured (docs/metrics.md).",
                   o.width, 0) +
           "\n";
  }
  if (!d.missing.empty()) out += "\n" + styled("missing", "1", o.color) + "\n" + missing_text(d, o);
  return out;
}

}  // namespace profiler
