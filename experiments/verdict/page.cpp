#include "experiments/verdict/page.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/read_file.h"
#include "experiments/statistics/decision.h"
#include "profiler/report/names.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;

constexpr size_t kShownKernels = 16, kShownOps = 12, kKernelName = 48;
constexpr double kLeastOp_ns = 5e3;
constexpr double kPredictionOff = 0.3;

std::optional<double> number(const ordered_json& at, const char* key) {
  const auto found = at.find(key);
  if (found == at.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string text(const ordered_json& at, const char* key) {
  const auto found = at.find(key);
  return found == at.end() || !found->is_string() ? "" : found->get<std::string>();
}

std::string ms(double ns) { return fmt::format("{:.3f}", ns * 1e-6); }
std::string signed_ms(double ns) { return fmt::format("{:+.3f}", ns * 1e-6); }

std::string ratio_text(const ordered_json& statistics) {
  const auto ratio = number(statistics, "ratio");
  if (!ratio) return "-";
  const auto interval = statistics.find("ratio_interval");
  std::string out = fmt::format("{:+.2f}%", 100 * (*ratio - 1));
  if (interval != statistics.end())
    out += fmt::format(" [{:+.2f}%, {:+.2f}%]", 100 * (interval->at(0).get<double>() - 1), 100 * (interval->at(1).get<double>() - 1));
  return out;
}

std::string cell(const std::string& kernel) {
  std::string name = profiler::elide(profiler::short_kernel_name(kernel), kKernelName);
  for (size_t i = 0; (i = name.find('|', i)) != std::string::npos; i += 2) name.insert(i, "\\");
  return name;
}

std::string prediction_text(const ordered_json& w) {
  const auto predicted = number(w, "predicted_saving_ms"), saved = number(w, "saved_ms");
  if (!predicted) return "";
  std::string out = fmt::format("Predicted saving {:+.3f} ms", *predicted);
  if (!saved) return out + ", not measured.";
  out += fmt::format(", measured {:+.3f} ms", *saved);
  if (const auto interval = w.find("saved_ms_interval"); interval != w.end())
    out += fmt::format(" [{:+.3f}, {:+.3f}]", interval->at(0).get<double>(), interval->at(1).get<double>());
  if (std::fabs(*saved - *predicted) > kPredictionOff * std::fabs(*predicted))
    out += ". **They differ by more than 30%: the explanation below must say why.**";
  else
    out += ".";
  return out;
}

// "113 → 57": DRAM bytes of a step's launches of that kernel, in MB; nothing without counters.
std::string moved(const ordered_json& kernel) {
  const auto a = number(kernel, "a_dram_bytes"), b = number(kernel, "b_dram_bytes");
  if (!a && !b) return "";
  return fmt::format("{:.0f} → {:.0f}", a.value_or(0) * 1e-6, b.value_or(0) * 1e-6);
}

// What an idea did where it changed the kernels' names; "" for a document without it.
std::string op_table(const ordered_json& f) {
  const auto ops = f.find("ops");
  if (ops == f.end() || ops->empty()) return "";
  std::string out = "| op | A, ms | B, ms | B - A |\n|---|---|---|---|\n";
  double a_left = f.at("a_ns").get<double>(),
         b_left = f.at("b_ns").get<double>();  // until everything has its row
  const auto row = [&](const std::string& words, double a, double b) {
    out += fmt::format("| {} | {} | {} | {} |\n", words, ms(a), ms(b), signed_ms(b - a));
    a_left -= a;
    b_left -= b;
  };
  for (size_t i = 0; i < ops->size(); ++i) {
    const ordered_json& o = ops->at(i);
    const double a = o.at("a_ns").get<double>(), b = o.at("b_ns").get<double>();
    if (i < kShownOps && std::fabs(b - a) >= kLeastOp_ns) row(fmt::format("{} {}", text(o, "pass"), text(o, "op")), a, b);
  }
  const ordered_json& idle = f.at("idle");
  row("idle between kernels", idle.at("a_ns").get<double>(), idle.at("b_ns").get<double>());
  row("everything else", a_left, b_left);
  return out + fmt::format("| step, traced | {} | {} | {} |\n\n", ms(f.at("a_ns").get<double>()), ms(f.at("b_ns").get<double>()),
                           signed_ms(f.at("delta_ns").get<double>()));
}

std::string waterfall_table(const ordered_json& f) {
  std::string out = "| | ms | where | launches | DRAM MB | kernel |\n|---|---|---|---|---|---|\n";
  out += fmt::format("| A | {} | | | | whole step, traced |\n", ms(f.at("a_ns").get<double>()));
  const ordered_json& kernels = f.at("kernels");
  double folded = f.at("other").at("delta_ns").get<double>();
  size_t folded_rows = f.at("other").at("kernels").get<size_t>();
  for (size_t i = 0; i < kernels.size(); ++i) {
    const ordered_json& k = kernels[i];
    if (i >= kShownKernels) {
      folded += k.at("delta_ns").get<double>();
      ++folded_rows;
      continue;
    }
    out += fmt::format("| {} | {} | {} {} | {} → {} | {} | {} |\n", text(k, "change"), signed_ms(k.at("delta_ns").get<double>()),
                       text(k, "pass"), text(k, "op"), k.at("a_launches").get<int64_t>(), k.at("b_launches").get<int64_t>(), moved(k),
                       cell(text(k, "kernel")));
  }
  if (folded_rows > 0) out += fmt::format("| other | {} | | | | {} more kernels |\n", signed_ms(folded), folded_rows);
  out += fmt::format("| idle | {} | | | | between kernels |\n", signed_ms(f.at("idle").at("delta_ns").get<double>()));
  out +=
      fmt::format("| rest | {} | | | | unattributed, and what the profiles miss |\n", signed_ms(f.at("rest").at("delta_ns").get<double>()));
  out += fmt::format("| B | {} | | | | whole step, traced ({} ms) |\n", ms(f.at("b_ns").get<double>()),
                     signed_ms(f.at("delta_ns").get<double>()));
  return out;
}

std::string environment_text(const ordered_json& e) {
  if (e.contains("absent")) return "Clocks: not sampled (" + text(e, "absent") + ").";
  if (!number(e, "temperature_c_max")) return "Clocks: no block was sampled.";
  std::string heated;
  if (const auto pairs = e.find("heating_pairs"); pairs != e.end() && !pairs->empty())
    heated = fmt::format(
        " **The device still warmed up**, by up to {:.1f} °C in 10 s, last after pair {}: both arms share "
        "that.",
        number(e, "heating_c_per_10_s_max").value_or(0), pairs->back().get<int>());
  const auto a_mhz = number(e, "a_sm_clock_mhz_median"), b_mhz = number(e, "b_sm_clock_mhz_median");
  return fmt::format(
      "{}; at most {:.0f} W; {:.0f} °C at first, {:.0f} °C at "
      "most; of {} blocks {} ran at the "
      "power cap, {} were slowed by "
      "heat or hardware.{}",
      a_mhz && b_mhz ? fmt::format("SM clock (median) A {:.0f} MHz, B {:.0f} MHz", *a_mhz, *b_mhz)
                     : std::string("SM clock not given, a block holds a whole program's start"),
      number(e, "power_w_max").value_or(0), number(e, "temperature_c_first").value_or(0), number(e, "temperature_c_max").value_or(0),
      e.at("blocks").get<int>(), e.at("power_capped_blocks").get<int>(), e.at("throttled_blocks").get<int>(), heated);
}

std::string launches_text(const ordered_json& w) {
  std::string out;
  for (const char* arm : {"a", "b"}) {
    const ordered_json& at = w.at(arm);
    const auto l = at.find("launches");
    const std::string absent = text(at, "launches_absent");
    if (l == at.end() && absent.empty()) continue;
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", arm[0] == 'a' ? "A" : "B",
                       l != at.end() ? text(*l, "sentence") : "not compared (" + absent + ")");
  }
  return out.empty() ? "" : "Launches: " + out + ".\n";
}

// In turns and alone are two questions; where the answers differ by what matters, the reader must know.
std::string solo_text(const ordered_json& w, const ordered_json& thresholds) {
  const auto ratio = number(w.at("statistics"), "ratio");
  if (!w.contains("solo") || !ratio) return "";
  const ordered_json& s = w.at("solo");
  const double alone = s.at("b_step_ns").get<double>() / s.at("a_step_ns").get<double>();
  if (std::fabs(std::log(alone / *ratio)) < std::log1p(number(thresholds, "minimum_effect_pct").value_or(0.3) / 100)) return "";
  return fmt::format(
      "**Alone B / A is {:+.2f}%, in turns {:+.2f}%.** In turns both arms have one clock, alone each has "
      "what its own power leaves it; and an "
      "arm that waits for the host is slower in short blocks, where the host has just been woken.\n",
      100 * (alone - 1), 100 * (*ratio - 1));
}

std::string gate_text(const ordered_json& w) {
  std::string out;
  for (const char* arm : {"a", "b"}) {
    const ordered_json& g = w.at(arm).at("gate");
    out += fmt::format("{}{}: {}{}", out.empty() ? "" : "; ", arm[0] == 'a' ? "A" : "B", g.at("passed").get<bool>() ? "" : "NOT passed, ",
                       text(g, "sentence"));
  }
  return out;
}

// " (look 2 of 3)"; "" where one was planned.
std::string look_text(const ordered_json& statistics, const ordered_json& thresholds) {
  const auto looks = thresholds.find("looks");
  if (looks == thresholds.end() || looks->size() < 2) return "";
  return fmt::format(" (look {} of {})", statistics.at("look").get<int>(), looks->size());
}

std::string workload_section(const ordered_json& w, const ordered_json& thresholds) {
  const ordered_json& s = w.at("statistics");
  std::string out =
      fmt::format("## {}: {}\n\n{} ({}).\n\n", text(w, "workload"), text(w, "verdict"), text(w, "sentence"), text(w, "reason"));
  out += "| | A | B | B / A |\n|---|---|---|---|\n";
  const auto a = number(w, "a_step_ns"), b = number(w, "b_step_ns");
  out += fmt::format("| step, ms | {} | {} | {} |\n", a ? ms(*a) : "-", b ? ms(*b) : "-", ratio_text(s));
  if (w.contains("statistics_in_cycles")) out += fmt::format("| SM cycles | | | {} |\n", ratio_text(w.at("statistics_in_cycles")));
  if (w.contains("solo")) {
    const double x = w.at("solo").at("a_step_ns").get<double>(), y = w.at("solo").at("b_step_ns").get<double>();
    out += fmt::format("| each alone for {:.0f} s, at the power cap, ms | {} | {} | {:+.2f}% |\n", w.at("solo").at("seconds").get<double>(),
                       ms(x), ms(y), (y / x - 1) * 100);
  }
  if (w.contains("memory")) {
    const ordered_json& m = w.at("memory");
    out += fmt::format("| memory, MB | {:.1f} | {:.1f} | {:+.1f} MB |\n", m.at("a_bytes").get<double>() * 1e-6,
                       m.at("b_bytes").get<double>() * 1e-6, m.at("delta_bytes").get<double>() * 1e-6);
  }
  out += "\n";
  if (const auto pairs = number(s, "pairs")) {
    out += fmt::format("{:.0f} pairs of fresh processes{}, interval at {:.4g}%", *pairs, look_text(s, thresholds),
                       100 * (1 - s.at("alpha").get<double>()));
    if (const auto p = number(s, "sign_flip_p_value")) out += fmt::format(", exact sign-flip p = {:.2g}", *p);
    if (const auto mde = number(s, "minimum_detectable_effect_pct")) out += fmt::format(", minimum detectable effect {:.2f}%", *mde);
    if (s.at("process_modes").get<bool>()) out += ", process-level modes";
    out += ".\n";
  }
  if (const auto planted = number(w, "planted_pct")) out += fmt::format("Planted in B: {:+.1f}%.\n", *planted);
  out += solo_text(w, thresholds);
  if (const std::string p = prediction_text(w); !p.empty()) out += p + "\n";
  out += "Gate: " + gate_text(w) + ".\n" + launches_text(w);
  out += environment_text(w.at("environment")) + "\n\n";
  if (w.contains("waterfall"))
    out += "From A to B, device time of traced steps (a profile of each arm after the measurement):\n\n" + op_table(w.at("waterfall")) +
           waterfall_table(w.at("waterfall")) + "\n";
  else
    out += "No waterfall: " + text(w, "waterfall_absent") + ".\n\n";
  return out;
}

}  // namespace

std::string page_of(const ordered_json& v) {
  std::string out = fmt::format("# {}\n\n**{}**", text(v, "name"), text(v, "verdict"));
  out += fmt::format(" — {}, {}, revision {}.\n\n", text(v.at("environment"), "device"), text(v, "at"), text(v.at("code"), "git_revision"));
  if (v.contains("experiment")) {
    const ordered_json& e = v.at("experiment");
    out += fmt::format(
        "**Question.** {}\n\n**Hypothesis.** {}\n\n**Change.** {}{}, against {}.\n\n**Prediction.** {}\n\n", text(e, "question"),
        text(e, "hypothesis"), text(e, "change").starts_with("--") ? "`" + text(e, "change") + "`" : text(e, "change"),
        e.at("compound").get<bool>() ? " (compound)" : "",
        text(e, "baseline") == "defaults" ? "the defaults" : "the frozen baseline " + text(e, "baseline"), text(e, "arithmetic"));
  }
  for (const ordered_json& w : v.at("workloads")) out += workload_section(w, v.at("thresholds"));
  out += text(v.at("ledger"), "sentence") + ".\n\n";
  out += "Made by `" + text(v, "command") + "`.\n\n";
  return out;
}

void write_page(const std::filesystem::path& file, const ordered_json& verdict) {
  std::string kept;
  if (const auto before = stepscope::read_file_if_there(file))
    if (const size_t at = before->find(kHandWritten); at != std::string::npos) kept = before->substr(at);
  if (kept.empty()) kept = std::string(kHandWritten) + "\n\n## Explanation\n\nNot written yet.\n";
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  gpt2::write_file_atomically(file, page_of(verdict) + kept);
}

std::string summary_of(const ordered_json& v) {
  std::string out;
  for (const ordered_json& w : v.at("workloads")) {
    out += fmt::format("{} | {}: {} ({})\n  {}\n", text(v, "name"), text(w, "workload"), text(w, "verdict"), text(w, "reason"),
                       text(w, "sentence"));
    const auto a = number(w, "a_step_ns"), b = number(w, "b_step_ns");
    if (a && b) {
      out += fmt::format("  step A {} ms, B {} ms", ms(*a), ms(*b));
      if (const auto saved = number(w, "saved_ms")) out += fmt::format("; saved {:+.3f} ms", *saved);
      if (const auto predicted = number(w, "predicted_saving_ms")) out += fmt::format(", predicted {:+.3f}", *predicted);
      if (const auto mde = number(w.at("statistics"), "minimum_detectable_effect_pct")) out += fmt::format("; detectable {:.2f}%", *mde);
      out += "\n";
    }
    if (w.contains("statistics_in_cycles")) out += fmt::format("  in SM cycles B / A = {}\n", ratio_text(w.at("statistics_in_cycles")));
    if (w.contains("waterfall")) {
      const ordered_json& f = w.at("waterfall");
      for (size_t i = 0; i < std::min<size_t>(3, f.at("ops").size()); ++i) {
        const ordered_json& o = f.at("ops")[i];
        out += fmt::format("  {} ms  {} {}\n", signed_ms(o.at("delta_ns").get<double>()), text(o, "pass"), text(o, "op"));
      }
      out += fmt::format("  {} ms  idle; {} ms in all, traced\n", signed_ms(f.at("idle").at("delta_ns").get<double>()),
                         signed_ms(f.at("delta_ns").get<double>()));
    }
    out += "  gate " + gate_text(w) + "\n";
  }
  return out + text(v.at("ledger"), "sentence") + "\n";
}

}  // namespace experiments
