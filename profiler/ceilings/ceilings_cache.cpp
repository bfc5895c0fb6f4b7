// The cache of measured ceilings: one JSON file per device.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "profiler/ceilings/ceilings.h"

namespace profiler {
namespace {

std::filesystem::path cache_file(const std::string& uuid) {
  const char* own = std::getenv("STEPSCOPE_CACHE");
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (own && *own)
    folder = own;
  else if (xdg && *xdg)
    folder = std::filesystem::path(xdg) / "stepscope";
  else if (home && *home)
    folder = std::filesystem::path(home) / ".cache" / "stepscope";
  else
    return {};
  return folder / ("ceilings-" + uuid + ".json");
}

constexpr const char* kSchema = "stepscope.ceilings/2";

std::optional<MeasuredCeilings> load(const std::filesystem::path& file, const std::string& driver) {
  std::ifstream in(file);
  if (!in) return std::nullopt;
  const auto j = nlohmann::json::parse(in, nullptr, false);
  if (j.is_discarded() || !j.is_object()) return std::nullopt;
  try {
    if (j.at("schema") != kSchema || j.at("driver") != driver) return std::nullopt;
    return MeasuredCeilings{j.at("copy_bytes_per_s"),
                            j.at("read_bytes_per_s"),
                            j.at("write_bytes_per_s"),
                            j.at("fp32_flops_per_s"),
                            j.at("tf32_flops_per_s"),
                            j.at("bf16_flops_per_s"),
                            j.at("device"),
                            j.at("uuid"),
                            j.at("driver"),
                            j.at("measured_at")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // a cache that does not read is measured again
  }
}

void save(const MeasuredCeilings& c, const std::filesystem::path& file) {
  const nlohmann::json j{{"schema", kSchema},
                         {"driver", c.driver},
                         {"copy_bytes_per_s", c.copy_bytes_per_s},
                         {"read_bytes_per_s", c.read_bytes_per_s},
                         {"write_bytes_per_s", c.write_bytes_per_s},
                         {"fp32_flops_per_s", c.fp32_flops_per_s},
                         {"tf32_flops_per_s", c.tf32_flops_per_s},
                         {"bf16_flops_per_s", c.bf16_flops_per_s},
                         {"device", c.device},
                         {"uuid", c.uuid},
                         {"measured_at", c.measured_at}};
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  const auto temporary = file.string() + fmt::format(".{}", ::getpid());
  {
    std::ofstream out(temporary);
    out << j.dump(1) << "\n";
    if (!out) return;
  }
  std::filesystem::rename(temporary, file, ignored);
}

}  // namespace

MeasuredCeilings ceilings_of_device(bool measure_again) {
  const DeviceIdentity device = device_identity();
  const auto file = cache_file(device.uuid);
  if (!measure_again && !file.empty()) {
    if (auto cached = load(file, device.driver)) return *cached;
  }
  const MeasuredCeilings c = measure_ceilings();
  if (!file.empty()) save(c, file);
  return c;
}

}  // namespace profiler
