#include "profiler/report/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "profiler/report/names.h"

namespace profiler {
namespace {

std::string ms(const Number& ns) { return ns ? fmt::format("{:.3f}", *ns * 1e-6) : "-"; }
std::string gigabytes(const Number& rate) { return rate ? fmt::format("{:.0f}", *rate * 1e-9) : "-"; }
std::string percent(const Number& v) { return v ? fmt::format("{:.1f}", *v) : "-"; }

// A cell must not end early, nor be read as markup.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '\\' || c == '`' || c == '*' || c == '_') out += '\\';
    out += c == '<' ? "&lt;" : c == '\n' ? " " : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string markdown_text(const ProfileDocument& d, size_t top) {
  std::string out = "### Profile";
  if (d.environment.gpu) out += ": " + cell(*d.environment.gpu);
  if (d.run.trainer) out += ", " + *d.run.trainer;
  if (d.run.batch_size && d.run.seq_len) out += fmt::format(", B {} T {}", *d.run.batch_size, *d.run.seq_len);
  out += "\n\n";
  if (d.timing.step_time_ns.median) {
    out += fmt::format("**{} ms a step**", ms(d.timing.step_time_ns.median));
    if (d.timing.step_time_ns.interval_low)
      out += fmt::format(" [{}, {}]", ms(d.timing.step_time_ns.interval_low), ms(d.timing.step_time_ns.interval_high));
    if (d.timing.tokens_per_s) out += fmt::format(", {:.0f} tokens/s", *d.timing.tokens_per_s);
    if (d.timing.of_matmul_ceiling_pct)
      out +=
          fmt::format(", {:.1f}% of the measured {} matmul ceiling", *d.timing.of_matmul_ceiling_pct, d.timing.matmul_ceiling.value_or(""));
    out += "\n\n";
  } else if (d.totals.time_ns) {
    out += fmt::format("**{} ms** of kernels{}\n\n", ms(d.totals.time_ns),
                       d.collection.producer == "ncu" ? ", each measured alone by Nsight Compute" : "");
  }
  if (!d.passes.empty()) {
    const bool of_kernels = !d.totals.headroom_ns;
    out += "| pass | ms | % | GB/s | % max | tensor % | headroom ms |\n|---|--:|--:|--:|--:|--:|--:|\n";
    for (const PassRow& p : d.passes)
      out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", p.name, ms(p.time_ns), percent(p.share_pct),
                         gigabytes(p.dram_bytes_per_s), percent(p.dram_of_ceiling_pct),
                         tensor_cell(p.tensor_active_pct, p.tensor_instructions), ms(of_kernels ? p.kernel_headroom_ns : p.headroom_ns));
    const auto share = [&](const Number& v) {
      return v && d.totals.time_ns && *d.totals.time_ns > 0 ? Number(*v / *d.totals.time_ns * 100) : std::nullopt;
    };
    for (const auto& [name, time] : {std::pair{"unattributed", d.totals.unattributed_ns}, std::pair{"idle", d.totals.idle_ns}})
      if (time) out += fmt::format("| {} | {} | {} | | | | |\n", name, ms(time), percent(share(time)));
    out += "\n";
  }
  if (d.passes.empty() && d.collection.shown_step && d.totals.time_ns && *d.totals.time_ns > 0 && d.totals.idle_ns)
    out += fmt::format("One step on the device: {} ms, idle {} ms of it ({}%).\n\n", ms(d.totals.time_ns), ms(d.totals.idle_ns),
                       percent(*d.totals.idle_ns / *d.totals.time_ns * 100));
  std::vector<const KernelRow*> kernels;
  for (const KernelRow& k : d.kernels) kernels.push_back(&k);
  std::stable_sort(kernels.begin(), kernels.end(), [](const KernelRow* a, const KernelRow* b) { return a->time_ns > b->time_ns; });
  if (!kernels.empty())
    out +=
        "| kernel | where | n | ms | GB/s | tensor % | bound | headroom ms "
        "|\n|---|---|--:|--:|--:|--:|---|--:|\n";
  for (size_t i = 0; i < std::min(top, kernels.size()); ++i) {
    const KernelRow& k = *kernels[i];
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", cell(elide(short_kernel_name(k.name), 60)),
                       k.pass ? cell(place_words(*k.pass, k.op.value_or(""))) : "-", k.launches + k.copies, ms(k.time_ns),
                       gigabytes(k.dram_bytes_per_s), tensor_cell(k.tensor_active_pct, k.tensor_instructions), k.bound.value_or("-"),
                       ms(k.headroom_ns));
  }
  if (kernels.size() > top) out += fmt::format("\n{} more kernels\n", kernels.size() - top);
  if (!d.missing.empty()) out += "\nMissing:\n";
  for (const MissingRow& m : d.missing)
    out += fmt::format("- **{}** {}{}: {}{}\n", m.severity, cell(m.name), m.count > 1 ? fmt::format(" × {}", m.count) : "",
                       m.detail.empty() ? "" : cell(m.detail) + ". ", cell(m.advice));
  out += "\n<details><summary>Environment</summary>\n\n";
  const auto line = [&](const std::string& key, const std::string& value) {
    if (!value.empty()) out += fmt::format("- {}: {}\n", cell(key), cell(value));
  };
  line("command", d.run.command);
  line("code", d.run.git_revision.value_or(""));
  for (const auto& [key, value] : d.environment.versions) line(key, value);
  for (const auto& [op, variant] : d.run.variants) line("variant " + op, variant);
  if (d.environment.sm_clock_mhz_median) line("SM clock", fmt::format("{:.0f} MHz", *d.environment.sm_clock_mhz_median));
  line("kernel times", d.collection.time_basis);
  line("tensor use", d.collection.tensor_metric.value_or(d.collection.tensor_instructions_metric.value_or("")));
  return out + "\n</details>\n";
}

}  // namespace profiler
