#include "profiler/diff/waterfall.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "profiler/diff/sort_by_change.h"
#include "profiler/ingest/foreign_report.h"

namespace profiler {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kUnnamed = "<unnamed>";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool in_word(char c) { return c == '_' || is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// CUPTI's names come from the C++ library ("float const*", "true", "4u"), ncu's and nsys' from the compiler ("const float *", "(bool)1",
// "(unsigned int)4", of which simplified_kernel_name cuts the casts).
std::string_view comparable_word(std::string_view word) {
  if (word == "const") return "";
  if (word == "true") return "1";
  if (word == "false") return "0";
  if (!is_digit(word.front())) return word;
  const size_t suffix = word.find_first_not_of("0123456789");
  return suffix != word.npos && word.find_first_not_of("uUlL", suffix) == word.npos ? word.substr(0, suffix) : word;
}

// The compiler spells the parameters of a template T1, T2, the library what they stand for; its arguments say the same.
std::string_view without_parameters_of_a_template(std::string_view name) {
  int depth = 0;
  bool is_template = false;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i).starts_with(kUnnamed)) {
      i += kUnnamed.size() - 1;
      continue;
    }
    if (name[i] == '<') ++depth, is_template = true;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0 && is_template) return name.substr(0, i);
  }
  return name;
}

}  // namespace

std::string comparable_kernel_name(std::string_view name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  std::string text(name);
  for (size_t at; (at = text.find(kAnonymous)) != std::string::npos;) text.replace(at, kAnonymous.size(), kUnnamed);
  text = simplified_kernel_name(text);
  const std::string_view rest = without_parameters_of_a_template(text);
  std::string comparable;
  for (size_t i = 0; i < rest.size();) {
    size_t end = i;
    while (end < rest.size() && in_word(rest[end])) ++end;
    if (end > i)
      comparable += comparable_word(rest.substr(i, end - i));
    else if (rest[end++] != ' ')
      comparable += rest[i];
    i = end;
  }
  return comparable;
}

std::optional<Waterfall> make_waterfall(const ProfileDocument& a, const ProfileDocument& b) {
  if (!a.totals.time_ns || !b.totals.time_ns) return std::nullopt;
  Waterfall w;
  w.a_total_ns = *a.totals.time_ns;
  w.b_total_ns = *b.totals.time_ns;
  w.a_idle_ns = a.totals.idle_ns.value_or(0);
  w.b_idle_ns = b.totals.idle_ns.value_or(0);

  std::map<std::tuple<std::string, std::string, std::string>, WaterfallRow> rows;
  std::map<std::pair<std::string, std::string>, WaterfallOp> ops;
  double a_sum = 0, b_sum = 0;
  const auto add = [&](const ProfileDocument& d, bool is_b, double& sum) {
    for (const KernelRow& k : d.kernels) {
      const std::string pass = k.pass.value_or("unattributed"), op = k.op.value_or("");
      WaterfallRow& row = rows[{pass, op, comparable_kernel_name(k.name)}];
      row.pass = pass;
      row.op = op;
      if (row.kernel.empty()) row.kernel = k.name;
      profiler::add(is_b ? row.b : row.a, side_of(k));
      WaterfallOp& o = ops[{pass, op}];
      o.pass = pass;
      o.op = op;
      (is_b ? o.b_ns : o.a_ns) += k.time_ns;
      sum += k.time_ns;
    }
  };
  add(a, false, a_sum);
  add(b, true, b_sum);
  w.a_rest_ns = w.a_total_ns - w.a_idle_ns - a_sum;
  w.b_rest_ns = w.b_total_ns - w.b_idle_ns - b_sum;
  for (auto& [key, row] : rows) {
    row.change = row.b.launches == 0 ? "gone" : row.a.launches == 0 ? "new" : "changed";
    w.kernels.push_back(std::move(row));
  }
  for (auto& [key, op] : ops) w.ops.push_back(std::move(op));
  sort_by_change(w.kernels);
  sort_by_change(w.ops);
  return w;
}

ordered_json to_json(const Waterfall& w, double least_ns) {
  ordered_json out{{"a_ns", w.a_total_ns}, {"b_ns", w.b_total_ns}, {"delta_ns", w.delta_ns()}};
  ordered_json& kernels = out["kernels"] = ordered_json::array();
  WaterfallRow other;
  int64_t others = 0;
  for (const WaterfallRow& k : w.kernels) {
    // What comes or goes is always told: a kernel that is gone is the point of the change, however short it
    // was.
    if (k.change == "changed" && std::fabs(k.delta_ns()) < least_ns) {
      add(other.a, k.a);
      add(other.b, k.b);
      ++others;
      continue;
    }
    ordered_json row{
        {"change", k.change},         {"pass", k.pass},      {"op", k.op},          {"kernel", k.kernel},      {"a_launches", k.a.launches},
        {"b_launches", k.b.launches}, {"a_ns", k.a.time_ns}, {"b_ns", k.b.time_ns}, {"delta_ns", k.delta_ns()}};
    if (const auto bytes = dram_bytes(k.a)) row["a_dram_bytes"] = *bytes;
    if (const auto bytes = dram_bytes(k.b)) row["b_dram_bytes"] = *bytes;
    kernels.push_back(std::move(row));
  }
  out["other"] = {{"kernels", others},       {"a_launches", other.a.launches}, {"b_launches", other.b.launches},
                  {"a_ns", other.a.time_ns}, {"b_ns", other.b.time_ns},        {"delta_ns", other.delta_ns()}};
  out["idle"] = {{"a_ns", w.a_idle_ns}, {"b_ns", w.b_idle_ns}, {"delta_ns", w.b_idle_ns - w.a_idle_ns}};
  out["rest"] = {{"a_ns", w.a_rest_ns}, {"b_ns", w.b_rest_ns}, {"delta_ns", w.b_rest_ns - w.a_rest_ns}};
  ordered_json& ops = out["ops"] = ordered_json::array();
  for (const WaterfallOp& o : w.ops)
    if (std::fabs(o.delta_ns()) >= least_ns)
      ops.push_back({{"pass", o.pass}, {"op", o.op}, {"a_ns", o.a_ns}, {"b_ns", o.b_ns}, {"delta_ns", o.b_ns - o.a_ns}});
  return out;
}

}  // namespace profiler
