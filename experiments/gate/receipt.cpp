#include "experiments/gate/receipt.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/json_read.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "base/utc.h"
#include "experiments/gate/source_scan.h"

namespace gate {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kSchema = "stepscope.receipt/2";
constexpr const char* kHashedCode = "code";  // of what the hashes are; absent in receipts of whole files

// Whether a report of a receipt says of some check what it found: a gate that checked nothing has not passed.
bool holds_checks(const ordered_json& report) {
  const auto checks = report.is_object() ? report.find("checks") : report.end();
  return checks != report.end() && checks->is_array() && !checks->empty();
}

}  // namespace

std::map<std::string, std::string> receipt_sources(const fs::path& source_root, const std::string& trainer) {
  auto hashes = hash_step_sources(source_root, trainer);
  if (hashes.empty())
    throw stepscope::InputError(fmt::format(
        "--write-receipt: {}, the source tree that this program was built from, has no CMake target {}_trainer; build stepscope "
        "where its receipt is to be written",
        source_root.string(), trainer));
  return hashes;
}

ordered_json make_receipt(const std::string& trainer, const std::vector<GateReport>& reports, const DeviceFacts& device,
                          const fs::path& source_root, const fs::path& binary, const std::string& git_revision) {
  if (reports.empty()) throw std::logic_error("receipt: no report");
  for (const GateReport& r : reports)
    if (!r.passed()) throw std::logic_error("receipt: the gate did not pass (" + r.trainer + ", " + r.workload + ")");
  if (device.name.empty() || device.driver.empty()) throw std::logic_error("receipt: not on a real device");
  const auto hashes = receipt_sources(source_root, trainer);

  ordered_json j{
      {"schema", kSchema}, {"trainer", trainer}, {"passed", true}, {"date", stepscope::now_utc()}, {"git_revision", git_revision}};
  j["device"] = {{"name", device.name},
                 {"uuid_sha256", device.uuid.empty() ? "" : gpt2::sha256_text(device.uuid)},
                 {"driver", device.driver},
                 {"cuda_runtime", device.cuda_runtime},
                 {"cublas", device.cublas}};
  if (!device.cudnn.empty()) j["device"]["cudnn"] = device.cudnn;
  j["binary_sha256"] = gpt2::sha256_file(binary);
  j["hashed"] = kHashedCode;
  j["sources"] = hashes;
  for (const GateReport& r : reports) {
    ordered_json one{{"matmul", r.matmul},
                     {"workload", r.workload},
                     {"seed", r.seed.value_or(0)},
                     {"count", r.results.size()},
                     {"checks", ordered_json::array()}};
    for (const CheckSummary& check : summarize(r)) {
      const CheckResult& c = *check.worst;
      one["checks"].push_back(
          fmt::format("{}: worst of {}, {}, {:.2e} <= {:.2e} {}", c.name, check.results.size(), c.tensor, c.error, c.budget, c.unit));
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

ReceiptProblems receipt_problems(const fs::path& receipt_file, const fs::path& root, const std::string& trainer) {
  auto now = hash_step_sources(root, trainer);
  const std::string name = receipt_file.filename().string();
  const std::string cure = fmt::format("; run `stepscope gate --trainer {} --write-receipt` on a GPU", trainer);
  ReceiptProblems out;
  if (now.empty()) {
    out.changed.push_back(fmt::format("{} has no CMake target {}_trainer, whose sources receipt {} is of", root.string(), trainer, name));
    return out;
  }
  const auto receipt_text = stepscope::read_file_if_there(receipt_file);
  if (!receipt_text) {
    out.changed.push_back(fmt::format("there is no receipt {} for {} sources{}", name, now.size(), cure));
    return out;
  }
  const auto receipt = stepscope::read_json<ordered_json>(*receipt_text);
  if (!receipt.is_object()) {
    out.damaged.push_back(fmt::format("receipt {}: {}", name, stepscope::why_no_object(*receipt_text, name)));
    return out;
  }
  const auto text = [&](const char* field) {
    const auto found = receipt.find(field);
    return found != receipt.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto passed = receipt.find("passed");
  const auto sources = receipt.find("sources");
  if (text("schema") != kSchema)
    out.damaged.push_back(fmt::format("receipt {} has schema '{}', expected {}{}", name, text("schema"), kSchema, cure));
  if (text("trainer") != trainer)
    out.damaged.push_back(fmt::format("receipt {} is of trainer '{}', expected {}", name, text("trainer"), trainer));
  if (passed == receipt.end() || !passed->is_boolean() || !passed->get<bool>())
    out.damaged.push_back(fmt::format("receipt {} is not of a passing gate", name));
  const auto reports = receipt.find("reports");
  if (reports == receipt.end() || !reports->is_array() || reports->empty())
    out.damaged.push_back(fmt::format("receipt {} holds no report", name));
  else if (!std::ranges::all_of(*reports, holds_checks))
    out.damaged.push_back(fmt::format("receipt {} holds a report without checks", name));
  std::map<std::string, std::string> then;
  if (sources != receipt.end() && sources->is_object())
    for (const auto& [path, hash] : sources->items()) then[path] = hash.is_string() ? hash.get<std::string>() : "";
  for (const auto& [path, hash] : then)
    if (hash.size() != 64) out.damaged.push_back(fmt::format("receipt {}: the hash of {} is no SHA-256", name, path));
  if (then.empty()) out.damaged.push_back(fmt::format("receipt {} names no sources", name));
  const bool of_bytes = !receipt.contains("hashed");
  if (!of_bytes && text("hashed") != kHashedCode)
    out.damaged.push_back(fmt::format("receipt {} has hashes of '{}', expected {}{}", name, text("hashed"), kHashedCode, cure));
  if (!out.damaged.empty()) return out;
  if (of_bytes) now = hash_step_sources(root, trainer, HashOf::bytes);
  for (const auto& [path, hash] : now) {
    const auto old = then.find(path);
    if (old == then.end()) {
      out.changed.push_back(fmt::format("{} is not in receipt {}{}", path, name, cure));
    } else if (old->second != hash) {
      out.changed.push_back(fmt::format("{} differs from receipt {}{}", path, name, cure));
    }
  }
  for (const auto& [path, hash] : then)
    if (!now.contains(path)) out.changed.push_back(fmt::format("{} of receipt {} is no source of the step any more{}", path, name, cure));
  return out;
}

}  // namespace gate
