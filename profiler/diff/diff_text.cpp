// A diff as text: for a terminal, for a pull request, for machines.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "profiler/diff/diff.h"
#include "profiler/report/names.h"
#include "profiler/report/text_table.h"

namespace profiler {
namespace {

using nlohmann::ordered_json;

constexpr double kNothing_ns = 500;  // below it a change is not worth a row

std::string ms(double ns) { return fmt::format("{:.3f}", ns * 1e-6); }
std::string change(double ns) { return fmt::format("{:+.3f}", ns * 1e-6); }
std::string percent(double a, double b) { return a > 0 ? fmt::format("{:+.1f}", (b / a - 1) * 100) : "new"; }
std::string gigabytes(const std::optional<double>& bytes) { return bytes ? fmt::format("{:.2f}", *bytes * 1e-9) : "-"; }
std::string tensor(const std::optional<Side>& s) { return s ? tensor_cell(s->tensor_active_pct, s->tensor_instructions) : "-"; }

std::string kernels_of(const KernelChange& k) {
  const auto names = [](const std::vector<std::string>& list) {
    std::string text;
    for (const std::string& n : list) text += (text.empty() ? "" : " + ") + short_kernel_name(n);
    return text;
  };
  if (k.change != "replaced") return names(k.a_kernels.empty() ? k.b_kernels : k.a_kernels);
  const std::string a = names(k.a_kernels), b = names(k.b_kernels);
  return a == b ? a : a + " -> " + b;
}
std::string where(const KernelChange& k) { return k.pass == "unattributed" ? "-" : place_words(k.pass, k.op); }
std::string name_of(const GroupChange& g) {
  if (g.layer) return fmt::format("{} layer {}", place_words(g.pass, ""), *g.layer);
  return g.op.empty() ? g.pass : place_words(g.pass, g.op);
}
std::string launches(int64_t a, int64_t b) { return a == b ? fmt::to_string(a) : fmt::format("{}>{}", a, b); }

std::vector<std::string> cells_of(const std::string& name, const std::optional<Side>& a, const std::optional<Side>& b) {
  const double x = a ? a->time_ns : 0, y = b ? b->time_ns : 0;
  return {name,
          a ? ms(x) : "-",
          b ? ms(y) : "-",
          change(y - x),
          b ? percent(x, y) : "gone",
          gigabytes(a ? a->dram_bytes : std::nullopt),
          gigabytes(b ? b->dram_bytes : std::nullopt),
          tensor(a),
          tensor(b)};
}

// Rows of a table, whatever it is printed as: the groups, then what makes it sum.
struct Rows {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

Rows group_rows(const ProfileDiff& d, const std::vector<GroupChange>& groups, const char* what, size_t top, bool sums) {
  Rows t{{what, "A ms", "B ms", "change", "%", "A GB", "B GB", "A tc%", "B tc%"}, {}};
  Side other_a, other_b;
  size_t others = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i < top) {
      t.rows.push_back(cells_of(name_of(groups[i]), groups[i].a, groups[i].b));
      continue;
    }
    ++others;
    if (groups[i].a) other_a.time_ns += groups[i].a->time_ns;
    if (groups[i].b) other_b.time_ns += groups[i].b->time_ns;
  }
  if (others) t.rows.push_back(cells_of(fmt::format("{} more", others), other_a, other_b));
  if (!sums) return t;
  const auto time = [](double ns) { return std::optional(Side{0, ns, std::nullopt, std::nullopt, std::nullopt, std::nullopt}); };
  double a = 0, b = 0;
  for (const GroupChange& g : groups) {
    a += g.a ? g.a->time_ns : 0;
    b += g.b ? g.b->time_ns : 0;
  }
  const double outside_a = d.a_device_ns - d.a_idle_ns - a, outside_b = d.b_device_ns - d.b_idle_ns - b;
  if (std::fabs(outside_a) > kNothing_ns || std::fabs(outside_b) > kNothing_ns)
    t.rows.push_back(cells_of("outside", time(outside_a), time(outside_b)));
  if (d.idle_known) t.rows.push_back(cells_of("idle", time(d.a_idle_ns), time(d.b_idle_ns)));
  t.rows.push_back(cells_of("sum", time(d.a_device_ns), time(d.b_device_ns)));
  return t;
}

Rows kernel_rows(const ProfileDiff& d, size_t top) {
  Rows t{{"kernel", "where", "what", "n", "A ms", "B ms", "change"}, {}};
  double other_a = 0, other_b = 0;
  size_t others = 0;
  for (const KernelChange& k : d.kernels) {
    if (t.rows.size() >= top || (k.change == "changed" && std::fabs(k.delta_ns()) < kNothing_ns)) {
      ++others;
      other_a += k.a.time_ns;
      other_b += k.b.time_ns;
      continue;
    }
    t.rows.push_back(
        {kernels_of(k), where(k), k.change, launches(k.a.launches, k.b.launches), ms(k.a.time_ns), ms(k.b.time_ns), change(k.delta_ns())});
  }
  const auto last = [&](const std::string& name, double a, double b) { t.rows.push_back({name, "", "", "", ms(a), ms(b), change(b - a)}); };
  if (others) last(fmt::format("{} more", others), other_a, other_b);
  if (d.idle_known) last("idle", d.a_idle_ns, d.b_idle_ns);
  if (std::fabs(d.a_rest_ns) > kNothing_ns || std::fabs(d.b_rest_ns) > kNothing_ns) last("rest", d.a_rest_ns, d.b_rest_ns);
  last("sum", d.a_device_ns, d.b_device_ns);
  return t;
}

Rows rows_of(const ProfileDiff& d, const DiffText& o) {
  switch (o.by) {
    case DiffBy::op:
      return group_rows(d, d.ops, "op", o.top, false);
    case DiffBy::layer:
      return group_rows(d, d.layers, "layer", o.top, false);
    case DiffBy::pass:
    case DiffBy::kernel:
      break;
  }
  return kernel_rows(d, o.top);
}

std::string terminal(const Rows& t, const DiffText& o, size_t left) {
  std::vector<TextTable::Column> columns;
  for (size_t i = 0; i < t.header.size(); ++i)
    columns.push_back({t.header[i], i < left ? TextTable::Align::left : TextTable::Align::right, i == 0, i > 4 ? static_cast<int>(i) : 0});
  TextTable table(columns);
  for (const auto& row : t.rows) table.row(row, row[0] == "sum" ? "1" : "");
  return table.text(o.width, o.color);
}

std::string markdown(const Rows& t, size_t left) {
  std::string out = "|";
  for (const std::string& h : t.header) out += " " + h + " |";
  out += "\n|";
  for (size_t i = 0; i < t.header.size(); ++i) out += i < left ? "---|" : "--:|";
  out += "\n";
  for (const auto& row : t.rows) {
    out += "|";
    for (const std::string& cell : row) {
      std::string escaped;
      for (const char c : cell) escaped += c == '|' ? "\\|" : c == '<' ? "&lt;" : std::string(1, c);
      out += " " + escaped + " |";
    }
    out += "\n";
  }
  return out;
}

std::string difference_words(const ProfileDiff& d) {
  std::string text;
  for (const RunDifference& r : d.runs)
    text += fmt::format("{}{} {} -> {}", text.empty() ? "" : "; ", r.what, r.a.empty() ? "none" : r.a, r.b.empty() ? "none" : r.b);
  return text;
}

std::string step_words(const StepChange& s) {
  std::string text = fmt::format("{} {} -> {} ms  {:+.2f}% ({} ms)", s.basis == "timed steps" ? "step" : s.basis, ms(s.a_ns), ms(s.b_ns),
                                 (s.ratio() - 1) * 100, change(s.b_ns - s.a_ns));
  if (s.low) text += fmt::format("  [{:+.2f}, {:+.2f}]", (*s.low - 1) * 100, (*s.high - 1) * 100);
  return text;
}
std::string caution(const ProfileDiff& d) {
  if (d.unlike()) return "The two runs differ in device, model, batch or sequence length; their times cannot be compared.";
  std::string text =
      "One run each is no verdict; `stepscope experiment run` compares fresh processes in turn, behind the "
      "gate.";
  if (d.step && d.step->differs())
    text = (*d.step->differs() ? "The medians differ by more than the spread of their own steps. "
                               : "The medians differ by less than the spread of their own steps. ") +
           text;
  return text;
}

ordered_json to_json(const Side& s) {
  ordered_json j{{"launches", s.launches}, {"time_ns", s.time_ns}};
  if (s.dram_bytes) j["dram_bytes"] = *s.dram_bytes;
  if (s.tensor_active_pct) j["tensor_active_pct"] = *s.tensor_active_pct;
  if (s.tensor_instructions) j["tensor_instructions"] = *s.tensor_instructions;
  if (s.sm_clock_hz) j["sm_clock_hz"] = *s.sm_clock_hz;
  return j;
}

}  // namespace

std::string diff_table(const ProfileDiff& d, const DiffText& o) {
  std::string out = fmt::format("A {}\nB {}\n", elide(o.a_name, o.width - 2), elide(o.b_name, o.width - 2));
  if (!d.runs.empty()) out += styled(wrapped("not the same: " + difference_words(d), o.width, 2), d.unlike() ? "31" : "33", o.color) + "\n";
  if (d.step) out += styled(step_words(*d.step), "1", o.color) + "\n";
  out += wrapped(caution(d), o.width, 0) + "\n\n";
  if (!d.passes.empty()) out += terminal(group_rows(d, d.passes, "pass", d.passes.size(), true), o, 1) + "\n";
  if (o.by != DiffBy::pass) out += terminal(rows_of(d, o), o, o.by == DiffBy::kernel ? 3 : 1);
  return out;
}

std::string diff_markdown(const ProfileDiff& d, const DiffText& o) {
  std::string out = fmt::format("### {} → {}\n\n", o.a_name, o.b_name);
  if (d.step) out += "**" + step_words(*d.step) + "**\n\n";
  out += caution(d) + "\n\n";
  if (!d.runs.empty()) out += "Not the same: " + difference_words(d) + "\n\n";
  if (!d.passes.empty()) out += markdown(group_rows(d, d.passes, "pass", d.passes.size(), true), 1) + "\n";
  if (o.by != DiffBy::pass) out += markdown(rows_of(d, o), o.by == DiffBy::kernel ? 3 : 1);
  return out;
}

ordered_json diff_json(const ProfileDiff& d, const DiffText& o) {
  ordered_json j{{"schema", "stepscope.diff/1"}, {"a", o.a_name}, {"b", o.b_name}};
  ordered_json& runs = j["not_the_same"] = ordered_json::array();
  for (const RunDifference& r : d.runs) runs.push_back({{"what", r.what}, {"a", r.a}, {"b", r.b}, {"unlike", r.unlike}});
  if (d.step) {
    j["step"] = {{"basis", d.step->basis}, {"a_ns", d.step->a_ns}, {"b_ns", d.step->b_ns}, {"ratio", d.step->ratio()}};
    if (d.step->low) j["step"]["ratio_low"] = *d.step->low, j["step"]["ratio_high"] = *d.step->high;
  }
  j["device"] = {{"a_ns", d.a_device_ns}, {"b_ns", d.b_device_ns}};
  if (d.idle_known) j["idle"] = {{"a_ns", d.a_idle_ns}, {"b_ns", d.b_idle_ns}};
  j["rest"] = {{"a_ns", d.a_rest_ns}, {"b_ns", d.b_rest_ns}};
  const auto groups = [&](const char* key, const std::vector<GroupChange>& list) {
    ordered_json& out = j[key] = ordered_json::array();
    for (const GroupChange& g : list) {
      ordered_json row{{"pass", g.pass}};
      if (!g.op.empty()) row["op"] = g.op;
      if (g.layer) row["layer"] = *g.layer;
      if (g.a) row["a"] = to_json(*g.a);
      if (g.b) row["b"] = to_json(*g.b);
      row["delta_ns"] = g.delta_ns();
      out.push_back(std::move(row));
    }
  };
  groups("passes", d.passes);
  groups("ops", d.ops);
  groups("layers", d.layers);
  ordered_json& kernels = j["kernels"] = ordered_json::array();
  for (const KernelChange& k : d.kernels)
    kernels.push_back({{"change", k.change},
                       {"pass", k.pass},
                       {"op", k.op},
                       {"a_kernels", k.a_kernels},
                       {"b_kernels", k.b_kernels},
                       {"a", to_json(k.a)},
                       {"b", to_json(k.b)},
                       {"delta_ns", k.delta_ns()}});
  return j;
}

}  // namespace profiler
