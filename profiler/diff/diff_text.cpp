// A diff as text: for a terminal, for a pull request, for machines.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <variant>

#include "base/text.h"
#include "profiler/diff/diff.h"
#include "profiler/document/fields.h"
#include "profiler/report/cells.h"
#include "profiler/report/names.h"
#include "profiler/report/text_table.h"
#include "profiler/report/view.h"

namespace profiler {
namespace {

using nlohmann::ordered_json;

constexpr double kNothing_ns = 500;  // below it a change is not worth a row

std::string percent_change(double a, double b) {
  if (a > 0) return fmt::format("{:+.1f}", (b / a - 1) * 100);
  return a == 0 && b > 0 ? "new" : "-";  // a rest may be below 0
}

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

// A and B of every number that diff_numbers() shows; a number goes from a narrow terminal before the one in front of it.
void add_number_columns(View& view, bool of_kernels) {
  int drop = 0;
  for (const DiffNumber& n : diff_numbers())
    if (!n.title.empty() && (n.of_kernels || !of_kernels))
      for (const char* side : {"A ", "B "}) view.columns.push_back({side + std::string(n.title), false, false, ++drop, ""});
}
void add_numbers(ViewRow& row, const std::optional<Side>& a, const std::optional<Side>& b, bool of_kernels) {
  for (const DiffNumber& n : diff_numbers()) {
    if (n.title.empty() || (of_kernels && !n.of_kernels)) continue;
    for (const std::optional<Side>* side : {&a, &b}) {
      const Side s = side->value_or(Side());
      row.cells.push_back({n.format == Format::tensor ? tensor_cell(s) : text_of(n.format, n.of(s))});
    }
  }
}

void add_group(View& view, const std::string& name, const std::optional<Side>& a, const std::optional<Side>& b) {
  const double x = a ? a->time_ns : 0, y = b ? b->time_ns : 0;
  ViewRow row{{{name},
               {a ? milliseconds(x) : "-"},
               {b ? milliseconds(y) : "-"},
               {change_in_milliseconds(y - x)},
               {b ? percent_change(x, y) : "gone"}},
              name == "sum" ? ViewRow::Kind::sum : ViewRow::Kind::plain};
  add_numbers(row, a, b, false);
  view.rows.push_back(std::move(row));
}

Side only_time(double ns) {
  Side side;
  side.time_ns = ns;
  return side;
}

// Groups, then what makes the rows sum.
View group_view(const ProfileDiff& d, const std::vector<GroupChange>& groups, const char* what, size_t top, bool sums) {
  View view;
  view.columns = {{what, true, true}, {"A ms"}, {"B ms"}, {"change"}, {"%"}};
  add_number_columns(view, false);
  Side more_a, more_b;
  double a = 0, b = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const Side x = groups[i].a.value_or(Side()), y = groups[i].b.value_or(Side());
    a += x.time_ns;
    b += y.time_ns;
    if (i < top) {
      add_group(view, name_of(groups[i]), groups[i].a, groups[i].b);
      continue;
    }
    add(more_a, x);
    add(more_b, y);
  }
  if (groups.size() > top) add_group(view, fmt::format("{} more", groups.size() - top), more_a, more_b);
  if (!sums) return view;
  const double outside_a = d.a_device.time_ns - d.a_idle_ns - a, outside_b = d.b_device.time_ns - d.b_idle_ns - b;
  if (std::fabs(outside_a) > kNothing_ns || std::fabs(outside_b) > kNothing_ns)
    add_group(view, "rest", only_time(outside_a), only_time(outside_b));
  if (d.idle_known) add_group(view, "idle", only_time(d.a_idle_ns), only_time(d.b_idle_ns));
  add_group(view, "sum", d.a_device, d.b_device);
  return view;
}

View kernel_view(const ProfileDiff& d, size_t top) {
  View view;
  view.columns = {{"kernel", true, true}, {"where", true}, {"what", true}, {"n"}, {"A ms"}, {"B ms"}, {"change"}};
  add_number_columns(view, true);
  const auto add_row = [&](const std::vector<std::string>& words, const Side& a, const Side& b) {
    ViewRow row;
    for (const std::string& word : words) row.cells.push_back({word});
    for (const std::string& time : {milliseconds(a.time_ns), milliseconds(b.time_ns), change_in_milliseconds(b.time_ns - a.time_ns)})
      row.cells.push_back({time});
    if (words[0] == "sum") row.kind = ViewRow::Kind::sum;
    add_numbers(row, a, b, true);
    view.rows.push_back(std::move(row));
  };
  Side more_a, more_b;
  size_t others = 0;
  for (const KernelChange& k : d.kernels) {
    if (view.rows.size() >= top || (k.change == "changed" && std::fabs(k.delta_ns()) < kNothing_ns)) {
      ++others;
      add(more_a, k.a);
      add(more_b, k.b);
      continue;
    }
    add_row({kernels_of(k), where(k), k.change, launches(k.a.launches, k.b.launches)}, k.a, k.b);
  }
  const auto last = [&](const std::string& name, const Side& a, const Side& b) { add_row({name, "", "", ""}, a, b); };
  if (others) last(fmt::format("{} more", others), more_a, more_b);
  if (d.idle_known) last("idle", only_time(d.a_idle_ns), only_time(d.b_idle_ns));
  if (std::fabs(d.a_rest_ns) > kNothing_ns || std::fabs(d.b_rest_ns) > kNothing_ns)
    last("rest", only_time(d.a_rest_ns), only_time(d.b_rest_ns));
  last("sum", d.a_device, d.b_device);
  return view;
}

View view_of(const ProfileDiff& d, const DiffText& o) {
  switch (o.by) {
    case DiffBy::op:
      return group_view(d, d.ops, "op", o.top, false);
    case DiffBy::layer:
      return group_view(d, d.layers, "layer", o.top, false);
    case DiffBy::pass:
    case DiffBy::kernel:
      break;
  }
  return kernel_view(d, o.top);
}

// The table below that of passes, `written` for a terminal or in Markdown.
std::string second_table(const ProfileDiff& d, const DiffText& o, const std::function<std::string(const View&)>& written) {
  if (o.by == DiffBy::pass) return "";
  if (o.by == DiffBy::op && d.ops.empty()) return "No ops: neither document has a row of one.\n";
  if (o.by == DiffBy::layer && d.layers.empty()) return "No layers: neither document has a row of one.\n";
  return written(view_of(d, o));
}

std::string as_it_is(const std::string& text) { return text; }
// Names of metrics are left as they are: an underscore within a word means nothing to Markdown.
std::string in_markdown(const std::string& text) {
  return text.find_first_of("|`<*\\\r\n") == text.npos ? text : stepscope::markdown_escaped(text);
}

std::string difference_words(const ProfileDiff& d, std::string (*written)(const std::string&) = as_it_is) {
  std::string text;
  for (const RunDifference& r : d.runs)
    text += fmt::format("{}{} {} -> {}", text.empty() ? "" : "; ", written(r.what), r.a.empty() ? "none" : written(r.a),
                        r.b.empty() ? "none" : written(r.b));
  return text;
}

std::string step_words(const StepChange& s) {
  std::string text = fmt::format("{} {} -> {} ms  {:+.2f}% ({} ms)", s.quantity(), milliseconds(s.a_ns), milliseconds(s.b_ns),
                                 (s.ratio() - 1) * 100, change_in_milliseconds(s.b_ns - s.a_ns));
  if (s.low) text += fmt::format("  [{:+.2f}, {:+.2f}]", (*s.low - 1) * 100, (*s.high - 1) * 100);
  return text;
}
// "mean of warm steps 9.045 -> 9.001 ms  -0.49%; 6.28 -> 6.25 J a step; 1805 -> 1811 SM MHz"
std::string state_words(const StateChange& s) {
  std::string text = fmt::format("{} {} -> {} ms  {:+.2f}%", s.quantity(), milliseconds(s.a.step_time_ns), milliseconds(s.b.step_time_ns),
                                 (s.ratio() - 1) * 100);
  for (const Field<StateRow>& f : fields_of<StateRow>()) {
    const auto* member = std::get_if<Number StateRow::*>(&f.member);
    if (!member || f.shown.format == Format::thousands || !(s.a.*(*member)) || !(s.b.*(*member))) continue;
    text += fmt::format("; {} -> {} {}", text_of(f.shown.format, s.a.*(*member)), text_of(f.shown.format, s.b.*(*member)), f.shown.title);
  }
  return text;
}

std::string doubt_words(const Doubt& d) { return fmt::format("{}: {}{}: {}", d.of, d.severe ? "severe " : "", d.name, d.text); }

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

// Every number that both rows have, by its name in the document.
ordered_json to_json(const StateChange& s) {
  ordered_json j{{"state", s.a.state}, {"statistic", "mean"}, {"ratio", s.ratio()}};
  for (const Field<StateRow>& f : fields_of<StateRow>()) {
    const std::string name(f.name);
    if (f.member.index() == 0) continue;  // words
    std::visit(
        [&](auto member) {
          using T = std::remove_cvref_t<decltype(s.a.*member)>;
          if constexpr (std::is_same_v<T, Number>) {
            if (s.a.*member) j["a"][name] = *(s.a.*member);
            if (s.b.*member) j["b"][name] = *(s.b.*member);
          } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, int64_t>) {
            j["a"][name] = s.a.*member;
            j["b"][name] = s.b.*member;
          }
        },
        f.member);
  }
  return j;
}

}  // namespace

std::string diff_table(const ProfileDiff& d, const DiffText& o) {
  std::string out =
      fmt::format("A {}\nB {}\n", elide(stepscope::printable(o.a_name), o.width - 2), elide(stepscope::printable(o.b_name), o.width - 2));
  if (!d.runs.empty())
    out +=
        styled(wrapped(stepscope::printable("not the same: " + difference_words(d)), o.width, 2), d.unlike() ? "31" : "33", o.color) + "\n";
  if (d.step) out += styled(step_words(*d.step), "1", o.color) + "\n";
  for (const StateChange& s : d.states) out += wrapped(state_words(s), o.width, 2) + "\n";
  if (d.ranks) out += wrapped(rank_words(*d.ranks), o.width, 2) + "\n";
  out += wrapped(caution(d), o.width, 0) + "\n";
  for (const Doubt& doubt : d.doubts)
    out += styled(wrapped(stepscope::printable(doubt_words(doubt)), o.width, 2), doubt.severe ? "31" : "33", o.color) + "\n";
  out += "\n";
  if (!d.passes.empty()) out += terminal_text(group_view(d, d.passes, "pass", d.passes.size(), true), o.width, o.color) + "\n";
  if (!d.without_rows.empty()) return out + wrapped(d.without_rows, o.width, 0) + "\n";
  return out + second_table(d, o, [&](const View& view) { return terminal_text(view, o.width, o.color); });
}

std::string diff_markdown(const ProfileDiff& d, const DiffText& o) {
  std::string out = fmt::format("### {} → {}\n\n", in_markdown(o.a_name), in_markdown(o.b_name));
  if (d.step) out += "**" + step_words(*d.step) + "**\n\n";
  for (const StateChange& s : d.states) out += "- " + state_words(s) + "\n";
  if (d.ranks) out += "- " + rank_words(*d.ranks) + "\n";
  if (!d.states.empty() || d.ranks) out += "\n";
  out += caution(d) + "\n\n";
  for (const Doubt& doubt : d.doubts) out += "- " + stepscope::markdown_escaped(doubt_words(doubt)) + "\n";
  if (!d.doubts.empty()) out += "\n";
  if (!d.runs.empty()) out += "Not the same: " + difference_words(d, in_markdown) + "\n\n";
  if (!d.passes.empty()) out += markdown_text(group_view(d, d.passes, "pass", d.passes.size(), true)) + "\n";
  if (!d.without_rows.empty()) return out + d.without_rows + "\n";
  return out + second_table(d, o, [](const View& view) { return markdown_text(view); });
}

ordered_json diff_json(const ProfileDiff& d, const DiffText& o) {
  ordered_json j{{"schema", "stepscope.diff/1"}, {"a", o.a_name}, {"b", o.b_name}};
  ordered_json& runs = j["not_the_same"] = ordered_json::array();
  for (const RunDifference& r : d.runs) runs.push_back({{"what", r.what}, {"a", r.a}, {"b", r.b}, {"unlike", r.unlike}});
  if (d.step) {
    j["step"] = {{"basis", d.step->basis}, {"a_ns", d.step->a_ns}, {"b_ns", d.step->b_ns}, {"ratio", d.step->ratio()}};
    if (d.step->basis == "timed steps") j["step"]["statistic"] = "median";
    if (d.step->low) j["step"]["ratio_low"] = *d.step->low, j["step"]["ratio_high"] = *d.step->high;
  }
  for (const StateChange& s : d.states) j["states"].push_back(to_json(s));
  if (d.ranks) j["ranks"] = to_json(*d.ranks);
  const bool rows = d.without_rows.empty();
  if (rows) j["device"] = {{"a_ns", d.a_device.time_ns}, {"b_ns", d.b_device.time_ns}};
  if (d.idle_known) j["idle"] = {{"a_ns", d.a_idle_ns}, {"b_ns", d.b_idle_ns}};
  for (const Doubt& doubt : d.doubts)
    j["doubts"].push_back({{"of", doubt.of}, {"name", doubt.name}, {"severe", doubt.severe}, {"text", doubt.text}});
  if (rows) j["rest"] = {{"a_ns", d.a_rest_ns}, {"b_ns", d.b_rest_ns}};
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
