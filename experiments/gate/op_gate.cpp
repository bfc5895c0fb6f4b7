// One trap: NaN bytes as poison show an element that is never written, but also turn "adds to what was there"
// into NaN, while finite garbage shows results that depend on old content by a little. So each case runs
// under both, and must give the same bits.
#include "experiments/gate/op_gate.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "experiments/gate/op_case.h"
#include "experiments/gate/op_judge.h"
#include "experiments/gate/random.h"
#include "fp32/trainer.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/errors.h"

namespace gate {
namespace {

using gpt2::cuda::DeviceBuffer;
using Bytes = std::vector<std::byte>;

constexpr int64_t kRedZoneBytes = 256;
constexpr std::byte kRedZone{0xa5};

// Finite floats of all signs and sizes, valid as double too.
Bytes garbage(int64_t bytes, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(bytes / 4 + 1));
  for (float& v : values) v = random.normal(100);
  Bytes out(static_cast<size_t>(bytes));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}
Bytes nan_bytes(int64_t bytes) { return Bytes(static_cast<size_t>(bytes), std::byte{0xff}); }

// A buffer with a red zone before its first and after its last byte.
class Guarded {
 public:
  explicit Guarded(const Bytes& content)
      : bytes_(static_cast<int64_t>(content.size())), memory_(2 * kRedZoneBytes + bytes_) {
    Bytes image(static_cast<size_t>(memory_.size()), kRedZone);
    std::copy(content.begin(), content.end(), image.begin() + kRedZoneBytes);
    STEPSCOPE_CUDA_CHECK(cudaMemcpy(memory_.data(), image.data(), image.size(), cudaMemcpyHostToDevice));
  }
  void* data() const { return memory_.data() + kRedZoneBytes; }
  struct Content {
    Bytes bytes;
    int64_t red_zone_bytes_touched = 0;
  };
  Content read() const {
    Bytes image(static_cast<size_t>(memory_.size()));
    STEPSCOPE_CUDA_CHECK(cudaMemcpy(image.data(), memory_.data(), image.size(), cudaMemcpyDeviceToHost));
    Content out;
    const auto touched = [&](int64_t begin) {
      return std::count_if(image.begin() + begin, image.begin() + begin + kRedZoneBytes,
                           [](std::byte b) { return b != kRedZone; });
    };
    out.red_zone_bytes_touched = touched(0) + touched(kRedZoneBytes + bytes_);
    out.bytes.assign(image.begin() + kRedZoneBytes, image.begin() + kRedZoneBytes + bytes_);
    return out;
  }

 private:
  int64_t bytes_;
  DeviceBuffer<std::byte> memory_;
};

struct Outcome {
  std::vector<Bytes> after;  // of every tensor
  int64_t red_zone_bytes = 0;
  int64_t input_bytes_changed = 0;
  std::string launch_error;  // that the launcher left unchecked
};

Outcome run_once(fp32::op::Context& context, const gpt2::cuda::Stream& stream, const OpCase& c,
                 const std::string& variant, const std::function<Bytes(int64_t)>& poison) {
  std::vector<Guarded> buffers;
  std::vector<void*> pointers;
  for (const OpTensor& t : c.tensors) {
    buffers.emplace_back(t.role == Role::output ? poison(t.byte_count()) : t.bytes);
    pointers.push_back(buffers.back().data());
  }
  const Guarded scratch(poison(c.scratch_bytes ? c.scratch_bytes(variant) : 0));
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  c.launch(context, variant, pointers, scratch.data());
  Outcome out;
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) out.launch_error = cudaGetErrorString(error);
  stream.synchronize();
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());  // work on a stream that is not ours counts too
  out.red_zone_bytes = scratch.read().red_zone_bytes_touched;
  for (size_t i = 0; i < buffers.size(); ++i) {
    Guarded::Content content = buffers[i].read();
    out.red_zone_bytes += content.red_zone_bytes_touched;
    if (c.tensors[i].role == Role::input)
      for (size_t b = 0; b < content.bytes.size(); ++b)
        out.input_bytes_changed += content.bytes[b] != c.tensors[i].bytes[b];
    out.after.push_back(std::move(content.bytes));
  }
  return out;
}

int64_t elements_different(const OpCase& c, const Outcome& a, const Outcome& b) {
  int64_t n = 0;
  for (size_t i = 0; i < c.tensors.size(); ++i) {
    const OpTensor& t = c.tensors[i];
    if (t.role == Role::input) continue;
    const size_t width = t.element == Element::f64 ? 8 : 4;
    for (size_t at = 0; at < a.after[i].size(); at += width)
      n += std::memcmp(&a.after[i][at], &b.after[i][at], width) != 0;
  }
  return n;
}

// Elements that still hold the NaN poison, all bits set: no arithmetic produces that pattern on these
// devices.
int64_t elements_unwritten(const OpCase& c, const Outcome& o) {
  int64_t n = 0;
  for (size_t i = 0; i < c.tensors.size(); ++i) {
    if (c.tensors[i].role != Role::output) continue;
    const size_t width = c.tensors[i].element == Element::f64 ? 8 : 4;
    for (size_t at = 0; at < o.after[i].size(); at += width)
      n += std::all_of(&o.after[i][at], &o.after[i][at] + width,
                       [](std::byte b) { return b == std::byte{0xff}; });
  }
  return n;
}

std::vector<double> as_doubles(const OpTensor& t, const Bytes& bytes) {
  std::vector<double> out(static_cast<size_t>(t.count()));
  for (size_t i = 0; i < out.size(); ++i) {
    if (t.element == Element::f64) {
      std::memcpy(&out[i], &bytes[i * 8], 8);
    } else {
      float x;
      std::memcpy(&x, &bytes[i * 4], 4);
      out[i] = static_cast<double>(x);
    }
  }
  return out;
}

class OpChecks {
 public:
  explicit OpChecks(const OpGateOptions& options) : options_(options) {
    for (const gpt2::VariantInfo& info : fp32::fp32_variants()) variants_[info.slot] = info.names;
    for (const char* rate : {"fp32", "tf32"})
      contexts_[rate] = std::make_unique<fp32::op::Context>(rate, stream_.get());
  }

  GateReport run() {
    report_.trainer = "fp32";
    report_.matmul = "fp32 and tf32";
    report_.device = device_facts().name;
    report_.workload = "single ops";
    report_.seed = options_.seed;
    try {
      for_each_op_case(options_.seed, [&](const OpCase& c) { check(c); });
    } catch (const gpt2::cuda::CallError&
                 e) {  // a kernel that faults leaves no usable device: what follows cannot be checked
      report_.add(must_be_zero(current_ + " error", "launch", 1, "faults", e.what()));
      report_.notes.push_back(e.what());
    }
    return std::move(report_);
  }

 private:
  void check(const OpCase& c) {
    if (options_.progress && c.op != current_op_) options_.progress(c.op);
    current_op_ = c.op;
    const auto found = variants_.find(c.op);
    const std::vector<std::string> names =
        found == variants_.end() ? std::vector<std::string>{""} : found->second;
    for (const auto& [rate, context] : contexts_) {
      if (rate == "tf32" && !c.matmul) continue;
      if (op_floor(rate, c.matmul) * c.floor_factor >= kFakeNoise / 2) {
        report_.notes.push_back(fmt::format("{} {}: not judged in {}, which loses too much on these inputs to tell right from wrong",
                                            c.op, c.shape, rate));
        continue;
      }
      std::map<std::string, ErrorMetrics> baseline;  // per tensor, of the first variant
      for (const std::string& variant : names)
        check_variant(c, variant, variant == names.front(), rate, *context, baseline);
    }
  }

  void check_variant(const OpCase& c, const std::string& variant, bool is_baseline, const std::string& rate,
                     fp32::op::Context& context, std::map<std::string, ErrorMetrics>& baseline) {
    const std::string name = c.op + (variant.empty() ? "" : "/" + variant);
    const std::string detail = c.shape + (rate == "tf32" ? ", tf32" : "");
    current_ = name;
    Outcome first;
    const auto refuse = [&](const char* why) {
      report_.notes.push_back(fmt::format("{} does not do {}: {}", name, c.shape, why));
    };
    try {
      first = run_once(context, stream_, c, variant, nan_bytes);
    } catch (const stepscope::InputError& e) {
      if (is_baseline) throw;
      return refuse(e.what());
    } catch (const stepscope::MachineError& e) {
      if (is_baseline) throw;
      return refuse(e.what());
    }
    const auto random = [&](int64_t bytes) { return garbage(bytes, options_.seed + 1); };
    const Outcome second = run_once(context, stream_, c, variant, random);
    int64_t repeats_different = 0;
    for (int i = 0; i < options_.repeats; ++i)
      repeats_different += elements_different(c, first, run_once(context, stream_, c, variant, nan_bytes));
    report_.add(must_be_zero(name + " poison", "all outputs", elements_different(c, first, second),
                             "elements", detail));
    report_.add(
        must_be_zero(name + " unwritten", "all outputs", elements_unwritten(c, first), "elements", detail));
    report_.add(must_be_zero(name + " red zone", "all buffers", first.red_zone_bytes + second.red_zone_bytes,
                             "bytes", detail));
    report_.add(must_be_zero(name + " inputs", "all inputs",
                             first.input_bytes_changed + second.input_bytes_changed, "bytes", detail));
    report_.add(must_be_zero(name + " launch error", "first run", !first.launch_error.empty(), "launches",
                             first.launch_error.empty() ? detail : first.launch_error));
    report_.add(must_be_zero(name + " repeat", "all outputs", repeats_different, "elements", detail));
    const double floor = op_floor(rate, c.matmul) * c.floor_factor;
    for (size_t i = 0; i < c.tensors.size(); ++i) {
      const OpTensor& t = c.tensors[i];
      if (t.role == Role::input) continue;
      const auto metrics = compare<double, double>(as_doubles(t, first.after[i]), t.want, t.rows, t.columns);
      const ErrorMetrics* base = is_baseline ? nullptr : &baseline[t.name];
      if (is_baseline) baseline[t.name] = metrics;
      const Tolerance limit = op_limit(floor, base);
      report_.add(from_metrics(name + " error", t.name, metrics, limit, detail));
      for (const std::string& fake : accepted_fakes(t.want, t.rows, t.columns, limit))
        report_.add(
            must_be_zero("able to fail", name + " " + t.name, 1, "fakes", fake + " would pass, " + detail));
    }
  }

  const OpGateOptions& options_;
  gpt2::cuda::Stream stream_;
  std::map<std::string, std::vector<std::string>> variants_;
  std::map<std::string, std::unique_ptr<fp32::op::Context>> contexts_;
  std::string current_op_, current_;
  GateReport report_;
};

std::string cuda_version(int64_t version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

GateReport check_ops(const OpGateOptions& options) {
  if (const auto why = gpt2::cuda::why_no_device())
    throw stepscope::MachineError("the op checks need a GPU: " + *why);
  return OpChecks(options).run();
}

DeviceFacts device_facts() {
  const gpt2::cuda::DeviceInfo info = gpt2::cuda::device_info();
  return {info.name, info.uuid, "CUDA " + cuda_version(info.driver_version),
          cuda_version(info.runtime_version), std::to_string(cublasLtGetVersion())};
}

}  // namespace gate
