// The file of algorithms: JSON, the 64 opaque bytes of each in hexadecimal. Device and library stand in its name and inside.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/cache_folder.h"
#include "base/stderr_text.h"
#include "gpt2/cuda/device_info.h"
#include "mixed/matmul.h"

namespace mixed {
namespace {

constexpr const char* kSchema = "stepscope.matmul-algorithms/1";

std::string to_hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> from_hex(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  constexpr size_t kWords = sizeof(algorithm.data) / sizeof(algorithm.data[0]);
  if (text.size() != kWords * 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  for (size_t i = 0; i < kWords; ++i) algorithm.data[i] = std::strtoull(text.substr(16 * i, 16).c_str(), nullptr, 16);
  return algorithm;
}

}  // namespace

std::filesystem::path algorithm_cache_file() {
  const auto folder = stepscope::cache_folder();
  if (folder.empty()) return {};
  std::string device = gpt2::cuda::device_info().name;
  for (char& c : device)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  return folder / fmt::format("matmul-{}-cublaslt-{}.json", device, cublasLtGetVersion());
}

AlgorithmCache::AlgorithmCache(std::filesystem::path file, MatmulAlgorithm rule) : file_(std::move(file)), rule_(rule) {
  if (file_.empty()) return;
  std::ifstream in(file_);  // one that cannot be read counts as empty: the search for algorithms is made again
  const auto doc = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!doc.is_object() || doc.value("schema", nlohmann::json()) != kSchema) return;
  const auto algorithms = doc.find("algorithms");
  if (algorithms == doc.end() || !algorithms->is_object()) return;
  for (const auto& [problem, entry] : algorithms->items()) {
    if (!entry.is_object() || !entry.contains("algorithm") || !entry["algorithm"].is_string()) continue;
    const auto algorithm = from_hex(entry["algorithm"].get<std::string>());
    if (!algorithm) continue;
    // By its own name: clang 16 and 17 cannot capture a structured binding with -fopenmp.
    const auto number = [&of = entry](const char* name) -> std::optional<double> {
      const auto found = of.find(name);
      if (found == of.end() || !found->is_number()) return std::nullopt;
      return found->get<double>();
    };
    const auto why = entry.find("why_by_time");
    known_[problem] = {*algorithm, number("time_us").value_or(0), number("joules"),
                       why != entry.end() && why->is_string() ? why->get<std::string>() : ""};
  }
}

// What time chose has the problem alone for its key, as files from before there were rules have it. Where a rule weighs others than it did,
// its words change: answers of the older rule must not be taken.
std::string AlgorithmCache::key(const std::string& problem) const {
  switch (rule_) {
    case MatmulAlgorithm::fitting_tiles:
      return problem + " rule fitting_tiles";
    case MatmulAlgorithm::search:
      return problem + " rule search";
    case MatmulAlgorithm::fewest_joules:
      return problem + " rule fewest_joules among four tiles";
    case MatmulAlgorithm::fastest:
    case MatmulAlgorithm::heuristic:  // asks for nothing
      break;
  }
  return problem;
}

std::optional<AlgorithmCache::Found> AlgorithmCache::find(const std::string& problem) const {
  const auto found = known_.find(key(problem));
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

void AlgorithmCache::remember(const std::string& problem, const Found& found) {
  known_[key(problem)] = found;
  changed_ = true;
}

void AlgorithmCache::save() noexcept {
  if (file_.empty() || !changed_) return;
  try {
    nlohmann::ordered_json doc{{"schema", kSchema}, {"algorithms", nlohmann::ordered_json::object()}};
    for (const auto& [problem, entry] : known_) {
      nlohmann::ordered_json& out = doc["algorithms"][problem];
      out = {{"algorithm", to_hex(entry.algorithm)}, {"time_us", entry.time_us}};
      if (entry.joules) out["joules"] = *entry.joules;
      if (!entry.why_by_time.empty()) out["why_by_time"] = entry.why_by_time;
    }
    std::filesystem::create_directories(file_.parent_path());
    gpt2::write_file_atomically(file_.string(), doc.dump(1) + "\n");
    changed_ = false;
  } catch (const std::exception& e) {
    stepscope::put_on_stderr(fmt::format("note: the algorithm cache {} was not written: {}\n", file_.string(), e.what()));
  }
}

}  // namespace mixed
