#include "mixed/attention_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/atomic_file.h"
#include "base/cache_folder.h"
#include "base/stderr_text.h"

namespace mixed {
namespace {

constexpr const char* kSchema = "stepscope.attention-plans/1";
constexpr double kNoise = 0.01;

double number(const nlohmann::json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_number() ? found->get<double>() : 0.0;
}

}  // namespace

size_t fastest_beyond_noise(const std::vector<std::vector<double>>& times) {
  if (times.empty() || times.front().empty()) throw std::invalid_argument("no plan was timed");
  const std::vector<double>& first = times.front();
  size_t chosen = 0;
  double chosen_ratio = 1;
  for (size_t c = 1; c < times.size(); ++c) {
    if (times[c].size() != first.size()) throw std::invalid_argument("plans were timed in different rounds");
    std::vector<double> ratios;
    for (size_t r = 0; r < first.size(); ++r) ratios.push_back(times[c][r] / first[r]);
    const auto slower = std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio >= 1; });
    // The upper of two middle ratios: what is said for the candidate errs against it.
    const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
    std::nth_element(ratios.begin(), middle, ratios.end());
    if (slower > 1 || *middle >= 1 - kNoise || *middle >= chosen_ratio) continue;
    chosen = c;
    chosen_ratio = *middle;
  }
  return chosen;
}

AttentionPlanCache::AttentionPlanCache(std::filesystem::path file) : file_(std::move(file)) {
  if (file_.empty()) return;
  std::ifstream in(file_);  // one that cannot be read counts as empty: the search is made again
  const auto doc = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!doc.is_object() || doc.value("schema", nlohmann::json()) != kSchema) return;
  const auto plans = doc.find("plans");
  if (plans == doc.end() || !plans->is_object()) return;
  for (const auto& [problem, entry] : plans->items())
    if (entry.is_object() && entry.contains("plan") && entry["plan"].is_string())
      known_[problem] = {entry["plan"].get<std::string>(), number(entry, "time_us"), number(entry, "first_time_us")};
}

std::optional<std::string> AttentionPlanCache::find(const std::string& problem) const {
  const auto found = known_.find(problem);
  if (found == known_.end()) return std::nullopt;
  return found->second.plan;
}

void AttentionPlanCache::remember(const std::string& problem, const std::string& plan, double time_us, double first_time_us) noexcept {
  try {
    known_[problem] = {plan, time_us, first_time_us};
    if (file_.empty()) return;
    nlohmann::ordered_json doc{{"schema", kSchema}, {"plans", nlohmann::ordered_json::object()}};
    for (const auto& [key, choice] : known_)
      doc["plans"][key] = {{"plan", choice.plan}, {"time_us", choice.time_us}, {"first_time_us", choice.first_time_us}};
    std::filesystem::create_directories(file_.parent_path());
    gpt2::write_file_atomically(file_.string(), doc.dump(1) + "\n");
  } catch (const std::exception& e) {
    stepscope::put_on_stderr(fmt::format("note: the cache of attention plans {} was not written: {}\n", file_.string(), e.what()));
  }
}

std::filesystem::path attention_plan_cache_file(const std::string& device, const std::string& cudnn_version) {
  const auto folder = stepscope::cache_folder();
  if (folder.empty()) return {};
  std::string name = device;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  return folder / fmt::format("attention-{}-cudnn-{}.json", name, cudnn_version);
}

}  // namespace mixed
