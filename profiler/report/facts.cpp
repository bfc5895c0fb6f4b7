#include "profiler/report/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>

#include "profiler/document/missing_rows.h"
#include "profiler/report/cells.h"
#include "profiler/report/names.h"
#include "profiler/report/views.h"

namespace profiler {
namespace {

std::string whole(const Number& v) { return v ? fmt::format("{:.0f}", *v) : ""; }

std::string device_words(const EnvironmentSection& e) {
  std::string text = e.gpu.value_or("");
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (e.chip) add(*e.chip);
  if (e.compute_capability) add("cc " + *e.compute_capability);
  if (e.sm_count) add(fmt::format("{} SMs", *e.sm_count));
  return text;
}

// The parts of a tiny model are far below a GiB.
std::string memory_words(double bytes) {
  return bytes < (1 << 30) ? fmt::format("{:.2f} MiB", bytes / (1 << 20)) : fmt::format("{:.2f} GiB", bytes / (1 << 30));
}

std::string with_range(const Number& middle, const std::string& rest) { return middle ? whole(middle) + rest : ""; }

}  // namespace

std::vector<Fact> headline(const ProfileDocument& d) {
  std::vector<Fact> facts;
  const StepTime& t = d.timing.step_time_ns;
  if (t.median) {
    std::string after;
    if (t.interval_low) after = fmt::format("[{}, {}]", milliseconds(t.interval_low), milliseconds(t.interval_high));
    if (d.timing.state) after += (after.empty() ? "" : " ") + *d.timing.state;
    facts.push_back({"median step", milliseconds(t.median) + " ms", after});
  } else if (d.totals.time_ns && d.collection.producer == "ncu") {
    facts.push_back({"all kernels", milliseconds(d.totals.time_ns) + " ms",
                     is_missing(d, "launches_multiplied") ? "measured alone, some counted several times" : "each measured alone"});
  }
  // The table of states has a mean step and the tokens/s of that.
  if (d.world.tokens_per_s)
    facts.push_back({"", thousands(*d.world.tokens_per_s), fmt::format("tokens/s on {} ranks at the median", d.world.size.value_or(0))});
  else if (d.timing.tokens_per_s)
    facts.push_back({"", thousands(*d.timing.tokens_per_s), "tokens/s at the median"});
  if (d.timing.of_matmul_ceiling_pct)
    facts.push_back({"", percent(d.timing.of_matmul_ceiling_pct) + "%",
                     fmt::format("of the measured {} matmul ceiling", d.timing.matmul_ceiling.value_or(""))});
  return facts;
}

std::vector<Fact> device_facts(const ProfileDocument& d) {
  const TotalsSection& t = d.totals;
  std::vector<Fact> facts;
  if (t.time_ns && !d.timing.step_time_ns.median && d.collection.producer != "ncu")
    facts.push_back({"", milliseconds(t.time_ns) + " ms", "on the device"});
  if (t.idle_ns) facts.push_back({"", milliseconds(t.idle_ns) + " ms", "idle between kernels"});
  if (t.headroom_ns)
    facts.push_back({"", milliseconds(t.headroom_ns) + " ms", "above the floor of the ops' mathematics"});
  else if (t.kernel_headroom_ns)
    facts.push_back(
        {"", milliseconds(t.kernel_headroom_ns) + " ms",
         std::string("above the floors of the kernels themselves") +
             (t.without_floor_ns ? fmt::format(", without {} ms of kernels that have none", milliseconds(t.without_floor_ns)) : "")});
  return facts;
}

namespace {

// The command line of another program as it was given. One of our own trainer without its run.json (`join` of recordings) is the line that
// `profile` made for its child, long and with files that are gone: of that the trainer, the model and the shape, as a run.json would say it.
std::vector<std::string> program_words(const std::string& program) {
  std::istringstream in(program);
  const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  if (words.size() < 2 || !words[0].substr(words[0].rfind('/') + 1).starts_with("stepscope") || words[1] != "train")
    return {elide(program, 60)};
  const auto value = [&](std::string_view flag) {
    const auto at = std::find(words.begin(), words.end(), flag);
    return at == words.end() || at + 1 == words.end() ? std::string() : *(at + 1);
  };
  std::vector<std::string> parts{"stepscope train"};
  for (const char* flag : {"--trainer", "--model"})
    if (const std::string v = value(flag); !v.empty()) parts.push_back(elide(v, 60));
  if (const std::string b = value("--batch-size"), t = value("--seq-len"); !b.empty() && !t.empty())
    parts.push_back(fmt::format("B {} T {}", b, t));
  return parts;
}

}  // namespace

std::vector<std::string> what_ran(const ProfileDocument& d) {
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
  // `command` of an ingested report is the command that read it; the program is the one that was measured.
  const std::string& program = d.collection.program.empty() ? d.run.command : d.collection.program;
  if (!d.run.trainer && !program.empty())
    for (std::string& part : program_words(program)) parts.push_back(std::move(part));
  if (d.environment.sm_clock_mhz_median)
    parts.push_back(fmt::format("SM {} MHz", whole(d.environment.sm_clock_mhz_median)) +
                    (d.environment.power_w_median ? fmt::format(", {} W", whole(d.environment.power_w_median)) : ""));
  return parts;
}

std::vector<std::pair<std::string, std::string>> environment_facts(const ProfileDocument& d) {
  const EnvironmentSection& e = d.environment;
  std::vector<std::pair<std::string, std::string>> facts;
  const auto add = [&](const std::string& what, const std::string& text) {
    if (!text.empty()) facts.emplace_back(what, text);
  };
  add("command", d.run.command);
  add("measured", d.run.profiled_at.value_or(""));
  add("code", d.run.git_revision.value_or("") + (d.run.build_type ? " " + *d.run.build_type : ""));
  add("GPU", device_words(e));
  for (const auto& [key, value] : e.versions) add(key, value);
  add("SM clock", with_range(e.sm_clock_mhz_median, fmt::format(" MHz ({} to {})", whole(e.sm_clock_mhz_min), whole(e.sm_clock_mhz_max))));
  add("power", with_range(e.power_w_median, fmt::format(" W, at most {} W", whole(e.power_w_max))));
  add("temperature", e.temperature_c_max ? fmt::format("at most {} °C", whole(e.temperature_c_max)) : "");
  add("throttled", fmt::format("{}", fmt::join(e.throttle_reasons, ", ")));
  for (const auto& [slot, variant] : d.run.variants) add("variant " + slot, variant);
  for (const auto& [kind, bytes] : d.run.memory_bytes) add("memory " + kind, memory_words(bytes));
  add("data", fmt::format("{}", fmt::join(d.run.data, " ")));
  if (d.run.first_loss) add("loss", fmt::format("{:.4f} to {:.4f}", *d.run.first_loss, d.run.last_loss.value_or(*d.run.first_loss)));
  add("collected by", d.collection.producer);
  add("kernel times", d.collection.time_basis);
  add("tensor use", d.collection.tensor_metric.value_or(d.collection.tensor_instructions_metric.value_or("")));
  if (d.collection.traced_steps) add("traced steps", std::to_string(d.collection.traced_steps));
  if (d.collection.counted_steps) add("counted steps", std::to_string(d.collection.counted_steps));
  if (d.collection.traced_overhead_pct) add("cost of tracing", percent(d.collection.traced_overhead_pct) + "%");
  if (d.collection.collecting_ns) add("cost of counting", fmt::format("{:.1f} s", *d.collection.collecting_ns / 1e9));
  return facts;
}

std::string steps_sentence(const ProfileDocument& d) {
  const StepTime& t = d.timing.step_time_ns;
  if (!t.median) return "";
  std::string text = fmt::format("Median {} ms", milliseconds(t.median));
  if (t.interval_low)
    text += fmt::format(", 95% interval of the median {} to {}", milliseconds(t.interval_low), milliseconds(t.interval_high));
  return text +
         fmt::format(", 5% of the steps below {}, 5% above {}, mean {}.", milliseconds(t.p05), milliseconds(t.p95), milliseconds(t.mean));
}

std::string timeline_sentence(const ProfileDocument& d) {
  const TimelineSection& t = d.timeline;
  if (!t.window_ns) return "";
  std::string text = fmt::format("In {} ms the device was busy for {} ms and idle for {} ms; at least two operations ran at once for {} ms",
                                 milliseconds(t.window_ns), milliseconds(t.busy_ns), milliseconds(t.idle_ns), milliseconds(t.overlap_ns));
  if (d.collection.graph_launches) text += fmt::format("; {} launches came from a CUDA graph", *d.collection.graph_launches);
  return text + ".";
}

bool ceilings_of_this_device(const ProfileDocument& d) {
  return !is_missing(d, "ceilings_of_unknown_gpu") && !is_missing(d, "ceilings_of_other_gpu");
}

std::string ceilings_sentence(const ProfileDocument& d) {
  if (!d.ceilings.copy_bytes_per_s) return "";
  std::string text = "Ceilings measured on " +
                     (ceilings_of_this_device(d) ? std::string("this device") : d.ceilings.device.value_or("another device")) +
                     (d.ceilings.measured_at ? " (" + *d.ceilings.measured_at + ")" : "");
  text += ": copy " + text_of(Format::gigabytes_per_s, d.ceilings.copy_bytes_per_s) + " GB/s";
  for (const auto& [precision, rate] : d.ceilings.matmul_flops_per_s) text += fmt::format(", {} {:.0f} TFLOP/s", precision, rate / 1e12);
  return text + ".";
}

std::string legend(const ProfileDocument& d) {
  if (d.ceilings.copy_bytes_per_s || d.totals.headroom_ns || d.totals.kernel_headroom_ns)  // a cut record has the latter
    return fmt::format(
        "GB/s is DRAM traffic of kernels, (max) its share of {} measured ceiling, headroom the ms above the floor (docs/metrics.md).",
        ceilings_of_this_device(d) ? "this device's" : "the");
  return fmt::format("Times are {}; headroom and shares of ceilings need a GPU whose ceilings were measured (docs/metrics.md).",
                     measured_alone(d) ? "sums over the report" : "per step");
}

}  // namespace profiler
