// What this device reaches: the ceilings of the roofline. Measured with our own bandwidth kernels and cuBLAS on random data (products of
// zeros run up to 13% faster), cached per device UUID because a device's ceilings change with its driver, not with the day.
#pragma once
#include <optional>
#include <string>

namespace profiler {

struct MeasuredCeilings {
  double copy_bytes_per_s = 0;  // bytes read + bytes written
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double fp32_flops_per_s = 0;  // matrix product without tensor cores
  double tf32_flops_per_s = 0;
  double bf16_flops_per_s = 0;
  std::string device, uuid, driver;
  std::string measured_at;  // UTC, ISO 8601
};

struct DeviceIdentity {
  std::string uuid;
  std::string cuda_version;  // that the driver supports; many drivers support the same
};
DeviceIdentity device_identity();  // of device 0; throws stepscope::MachineError

// Takes about a second of device 0; the context it makes is destroyed again. Leaves out the driver. Throws stepscope::MachineError when CUDA
// fails.
MeasuredCeilings measure_ceilings();

// The cached ceilings of this device if they were measured with this driver, else measures and writes the cache (folder
// $STEPSCOPE_CACHE or $XDG_CACHE_HOME/stepscope or ~/.cache/stepscope; an unwritable cache is not an error). The driver is the version that
// NVML tells; where there is no NVML, the CUDA version stands for it, and an update of the driver that keeps that goes unnoticed. `nvml` is
// what dlopen gets; tests name a library of their own.
MeasuredCeilings ceilings_of_device(bool measure_again, const char* nvml = "libnvidia-ml.so.1");

}  // namespace profiler
