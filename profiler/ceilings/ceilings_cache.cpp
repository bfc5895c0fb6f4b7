// The cache of measured ceilings: one JSON file per device.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/cache_folder.h"
#include "base/nvml.h"
#include "base/read_file.h"
#include "base/stderr_text.h"
#include "profiler/ceilings/ceilings.h"

namespace profiler {
namespace {

std::filesystem::path cache_file(const std::string& uuid) {
  const auto folder = stepscope::cache_folder();
  return folder.empty() ? folder : folder / ("ceilings-" + uuid + ".json");
}

constexpr const char* kSchema = "stepscope.ceilings/2";

std::optional<MeasuredCeilings> load(const std::filesystem::path& file, const std::string& driver) {
  try {
    const auto text = stepscope::read_file_if_there(file);
    if (!text) return std::nullopt;
    const auto j = nlohmann::json::parse(*text, nullptr, false);
    if (j.is_discarded() || !j.is_object()) return std::nullopt;
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
  } catch (const std::exception&) {
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
  try {
    std::filesystem::create_directories(file.parent_path());
    gpt2::write_file_atomically(file, j.dump(1) + "\n");
  } catch (const std::exception& e) {
    stepscope::put_on_stderr(fmt::format("note: the ceilings were not kept in {}: {}\n", file.string(), e.what()));
  }
}

std::string driver_in_use(const DeviceIdentity& device, const char* nvml) {
  std::string why_not;
  const auto asked = stepscope::nvml::Device::open(why_not, "", nvml);
  return asked ? asked->driver_version().value_or(device.cuda_version) : device.cuda_version;
}

}  // namespace

MeasuredCeilings ceilings_of_device(bool measure_again, const char* nvml) {
  const DeviceIdentity device = device_identity();
  const std::string driver = driver_in_use(device, nvml);
  const auto file = cache_file(device.uuid);
  if (!measure_again && !file.empty()) {
    if (auto cached = load(file, driver)) return *cached;
  }
  MeasuredCeilings c = measure_ceilings();
  c.driver = driver;
  if (!file.empty()) save(c, file);
  return c;
}

}  // namespace profiler
