#include "experiments/gate/receipt.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "gpt2/atomic_file.h"
#include "gpt2/errors.h"
#include "gpt2/sha256.h"

namespace gate {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kSchema = "stepscope.receipt/1";

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc);
}

}  // namespace

std::map<std::string, std::string> hash_device_sources(const fs::path& root, const std::string& trainer) {
  std::map<std::string, std::string> hashes;
  for (const fs::path& folder : {root / trainer, root / "gpt2" / "cuda"}) {
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file())
        hashes[fs::relative(entry.path(), root).generic_string()] = gpt2::sha256_file(entry.path());
  }
  return hashes;
}

ordered_json make_receipt(const std::string& trainer, const std::vector<GateReport>& reports,
                          const DeviceFacts& device, const fs::path& source_root, const fs::path& binary,
                          const std::string& git_revision) {
  if (reports.empty()) throw std::logic_error("receipt: no report");
  for (const GateReport& r : reports)
    if (!r.passed())
      throw std::logic_error("receipt: the gate did not pass (" + r.trainer + ", " + r.workload + ")");
  if (device.name.empty() || device.driver.empty()) throw std::logic_error("receipt: not on a real device");
  const auto hashes = hash_device_sources(source_root, trainer);
  if (hashes.empty())
    throw stepscope::InputError(fmt::format("receipt: no device sources under {}", source_root.string()));

  ordered_json j{{"schema", kSchema},
                 {"trainer", trainer},
                 {"passed", true},
                 {"date", today()},
                 {"git_revision", git_revision}};
  j["device"] = {{"name", device.name},
                 {"uuid_sha256", device.uuid.empty() ? "" : gpt2::sha256_text(device.uuid)},
                 {"driver", device.driver},
                 {"cuda_runtime", device.cuda_runtime},
                 {"cublas", device.cublas}};
  j["binary_sha256"] = gpt2::sha256_file(binary);
  j["sources"] = hashes;
  for (const GateReport& r : reports) {
    ordered_json one{{"matmul", r.matmul},
                     {"workload", r.workload},
                     {"seed", r.seed.value_or(0)},
                     {"count", r.results.size()},
                     {"checks", ordered_json::array()}};
    for (const CheckSummary& check : summarize(r)) {
      const CheckResult& c = *check.worst;
      one["checks"].push_back(fmt::format("{}: worst of {}, {}, {:.2e} <= {:.2e} {}", c.name,
                                          check.results.size(), c.tensor, c.error, c.budget, c.unit));
    }
    j["reports"].push_back(std::move(one));
  }
  return j;
}

fs::path write_receipt(const fs::path& folder, const ordered_json& receipt) {
  const fs::path path = folder / (receipt.at("trainer").get<std::string>() + ".json");
  gpt2::write_file_atomically(path, receipt.dump(1) + "\n");
  return path;
}

std::vector<std::string> receipt_problems(const fs::path& receipt_file, const fs::path& root,
                                          const std::string& trainer) {
  const auto now = hash_device_sources(root, trainer);
  const std::string name = receipt_file.filename().string();
  const std::string cure =
      fmt::format("; run `stepscope gate --trainer {} --write-receipt` on a GPU", trainer);
  if (!fs::exists(receipt_file)) {
    if (now.empty()) return {};
    return {fmt::format("there is no receipt {} for {} device sources{}", name, now.size(), cure)};
  }
  std::ifstream in(receipt_file);
  const ordered_json receipt = ordered_json::parse(in, nullptr, false);
  if (receipt.is_discarded() || !receipt.is_object()) return {fmt::format("{} is not JSON", name)};
  if (receipt.value("schema", "") != kSchema)
    return {fmt::format("{} has schema '{}', expected {}", name, receipt.value("schema", ""), kSchema)};
  std::vector<std::string> problems;
  if (receipt.value("trainer", "") != trainer)
    problems.push_back(
        fmt::format("{} is of trainer '{}', not {}", name, receipt.value("trainer", ""), trainer));
  if (!receipt.value("passed", false)) problems.push_back(name + " is not of a passing gate");
  std::map<std::string, std::string> then;
  if (const auto sources = receipt.find("sources"); sources != receipt.end() && sources->is_object())
    for (const auto& [path, hash] : sources->items())
      if (hash.is_string()) then[path] = hash.get<std::string>();
  for (const auto& [path, hash] : now) {
    const auto old = then.find(path);
    if (old == then.end()) {
      problems.push_back(fmt::format("{} is not in receipt {}{}", path, name, cure));
    } else if (old->second != hash) {
      problems.push_back(fmt::format("{} differs from receipt {}{}", path, name, cure));
    }
  }
  for (const auto& [path, hash] : then)
    if (!now.contains(path)) problems.push_back(fmt::format("{} of receipt {} is gone{}", path, name, cure));
  return problems;
}

}  // namespace gate
