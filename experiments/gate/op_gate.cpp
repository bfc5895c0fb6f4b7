// One trap: NaN bytes as poison show an element that is never written, but also turn "adds to what was there"
// into NaN, while finite garbage shows results that depend on old content by a little. So each case runs
// under both, and must give the same bits.
#include "experiments/gate/op_gate.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>

#include "experiments/gate/op_case.h"
#include "experiments/gate/op_judge.h"
#include "experiments/gate/random.h"
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

// Finite floats of all signs and sizes, valid as double and as pairs of bf16 too.
Bytes garbage(int64_t bytes, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(bytes / 4 + 1));
  for (float& v : values) {
    const uint32_t half = std::bit_cast<uint32_t>(random.normal(100)) >> 16;
    v = std::bit_cast<float>(half << 16 | half);
  }
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

Outcome run_once(const ContextRef& context, const gpt2::cuda::Stream& stream, const OpCase& c,
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
    const auto width = static_cast<size_t>(bytes_of_element(t.element));
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
    const auto width = static_cast<size_t>(bytes_of_element(c.tensors[i].element));
    for (size_t at = 0; at < o.after[i].size(); at += width)
      n += std::all_of(&o.after[i][at], &o.after[i][at] + width,
                       [](std::byte b) { return b == std::byte{0xff}; });
  }
  return n;
}

std::vector<double> as_doubles(const OpTensor& t, const Bytes& bytes) {
  if (t.element != Element::f64) {
    const std::vector<float> floats = floats_of(bytes, t.element);
    return {floats.begin(), floats.end()};
  }
  std::vector<double> out(static_cast<size_t>(t.count()));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// Whether calls still work: a kernel that faulted leaves a context in which none does.
bool device_works() {
  (void)cudaGetLastError();
  return cudaDeviceSynchronize() == cudaSuccess;
}

class OpChecks {
 public:
  explicit OpChecks(const OpGateOptions& options) : options_(options), suite_(suite_of(options.trainer)) {
    for (const gpt2::VariantInfo& info : suite_.variants) variants_[info.slot] = info.names;
    for (const std::string& rate : suite_.rates) contexts_.emplace_back(rate, suite_.make_context(rate, stream_.get()));
  }

  GateReport run() {
    report_.trainer = suite_.trainer;
    report_.matmul = fmt::format("{}", fmt::join(suite_.rates, " and "));
    report_.device = device_facts().name;
    report_.workload = "single ops";
    report_.seed = options_.seed;
    try {
      suite_.for_each_case(options_.seed, [&](const OpCase& c) { check(c); });
    } catch (const DeviceLost& lost) {
      report_.notes.push_back(fmt::format("what follows {} was not checked: the device takes no more calls", lost.after));
    }
    return std::move(report_);
  }

 private:
  void check(const OpCase& c) {
    if (options_.progress && c.op != current_op_) options_.progress(c.op);
    current_op_ = c.op;
    const auto found = variants_.find(c.op);
    const std::vector<std::string> names = !c.variants.empty()        ? c.variants
                                           : found == variants_.end() ? std::vector<std::string>{""}
                                                                      : found->second;
    for (const auto& [rate, context] : contexts_) {
      if (rate != suite_.rates.front() && !c.matmul) continue;
      if (op_floor(rate, c.matmul) * c.floor_factor >= kFakeNoise / 2) {
        report_.notes.push_back(fmt::format("{} {}: not judged in {}, which loses too much on these inputs to tell right from wrong",
                                            c.op, c.shape, rate));
        continue;
      }
      std::map<std::string, ErrorMetrics> baseline;  // per tensor, of the first variant
      for (const std::string& variant : names) check_or_fail(c, variant, variant == names.front(), rate, context, baseline);
    }
  }

  struct DeviceLost {
    std::string after;
  };

  // What a launch throws fails its check; the cases after it go on where the device does.
  void check_or_fail(const OpCase& c, const std::string& variant, bool is_baseline, const std::string& rate,
                     const ContextRef& context, std::map<std::string, ErrorMetrics>& baseline) {
    const std::string name = c.op + (variant.empty() ? "" : "/" + variant);
    try {
      check_variant(c, variant, name, is_baseline, rate, context, baseline);
    } catch (const std::exception& e) {
      const bool lost = !device_works();
      report_.add(must_be_zero(name + " error", "launch", 1, lost ? "faults" : "errors", c.shape + ": " + e.what()));
      if (lost) throw DeviceLost{name};
    }
  }

  static OpSuite suite_of(const std::string& trainer) {
    if (trainer == "fp32") return fp32_ops();
    if (trainer == "mixed") return mixed_ops();
    throw stepscope::InputError(fmt::format("no op checks for trainer '{}': expected fp32 or mixed", trainer));
  }

  void check_variant(const OpCase& c, const std::string& variant, const std::string& name, bool is_baseline,
                     const std::string& rate, const ContextRef& context, std::map<std::string, ErrorMetrics>& baseline) {
    const std::string detail = c.shape + (rate == "tf32" ? ", tf32" : "");
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
    const bool repeats = suite_.repeats(c.op, variant);
    if (repeats) {
      int64_t repeats_different = 0;
      for (int i = 0; i < options_.repeats; ++i)
        repeats_different += elements_different(c, first, run_once(context, stream_, c, variant, nan_bytes));
      report_.add(must_be_zero(name + " repeat", "all outputs", repeats_different, "elements", detail));
      report_.add(must_be_zero(name + " poison", "all outputs", elements_different(c, first, second),
                               "elements", detail));
    }
    report_.add(
        must_be_zero(name + " unwritten", "all outputs", elements_unwritten(c, first), "elements", detail));
    report_.add(must_be_zero(name + " red zone", "all buffers", first.red_zone_bytes + second.red_zone_bytes,
                             "bytes", detail));
    report_.add(must_be_zero(name + " inputs", "all inputs",
                             first.input_bytes_changed + second.input_bytes_changed, "bytes", detail));
    report_.add(must_be_zero(name + " launch error", "first run", !first.launch_error.empty(), "launches",
                             first.launch_error.empty() ? detail : first.launch_error));
    const double floor = op_floor(rate, c.matmul) * c.floor_factor;
    for (size_t i = 0; i < c.tensors.size(); ++i) {
      const OpTensor& t = c.tensors[i];
      if (t.role == Role::input) continue;
      const std::vector<double> got = as_doubles(t, first.after[i]);
      const auto metrics = compare<double, double>(got, t.want, t.rows, t.columns);
      const ErrorMetrics* base = is_baseline ? nullptr : &baseline[t.name];
      if (is_baseline) baseline[t.name] = metrics;
      const Tolerance limit = t.rounding ? op_limit(rounding_limit(t.rounding), base) : op_limit(floor, base);
      report_.add(from_metrics(name + " error", t.name, metrics, limit, detail));
      if (!repeats)  // other bits are allowed, other answers are not: what the poison was may not show
        report_.add(from_metrics(name + " error", t.name,
                                 compare<double, double>(as_doubles(t, second.after[i]), t.want, t.rows, t.columns), limit,
                                 detail + ", other poison"));
      if (t.rounding.count > 0 && t.rounding.inside == 0)
        report_.add(make_result(name + " element", t.name,
                                {{"worst element", worst_element(got, t.want), element_limit(t.rounding)}}, detail));
      for (const std::string& fake : accepted_fakes(t.want, t.rows, t.columns, limit))
        report_.add(
            must_be_zero("able to fail", name + " " + t.name, 1, "fakes", fake + " would pass, " + detail));
    }
    if (c.judge) c.judge(first.after, name, detail, report_);
  }

  const OpGateOptions& options_;
  OpSuite suite_;
  gpt2::cuda::Stream stream_;
  std::map<std::string, std::vector<std::string>> variants_;
  std::vector<std::pair<std::string, ContextRef>> contexts_;
  std::string current_op_;
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
