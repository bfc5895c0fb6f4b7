// One trap: NaN bytes as poison show an element that is never written, but also turn "adds to what was there"
// into NaN, while finite garbage shows results that depend on old content by a little. So each case runs
// under both, and must give the same bits.
#include "experiments/gate/op_gate.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "experiments/gate/op_candidates.h"
#include "experiments/gate/op_case.h"
#include "experiments/gate/op_compare.h"
#include "experiments/gate/op_hog.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"

namespace gate {
namespace {

constexpr Space kHere = Space::device;
constexpr int64_t kRedZoneBytes = 256;
constexpr std::byte kRedZone{0xa5}, kAllOnes{0xff};

enum class Poison { nan, garbage };

// A buffer with a red zone before its first and after its last byte.
class Guarded {
 public:
  explicit Guarded(int64_t bytes) : bytes_(bytes), memory_(kHere, 2 * kRedZoneBytes + bytes) {}
  std::byte* data() const { return memory_.data() + kRedZoneBytes; }
  void guard() const {
    set_bytes(memory_.data(), kHere, kRedZone, kRedZoneBytes);
    set_bytes(data() + bytes_, kHere, kRedZone, kRedZoneBytes);
  }
  void set(Poison poison, uint64_t seed) const {
    if (poison == Poison::nan)
      set_bytes(data(), kHere, kAllOnes, bytes_);
    else
      fill_garbage(data(), kHere, bytes_, seed);
  }
  void set(const Memory& content) const { copy_bytes(data(), content.data(), kHere, bytes_); }
  Memory content() const {
    Memory out(kHere, bytes_);
    copy_bytes(out.data(), data(), kHere, bytes_);
    return out;
  }
  int64_t red_zone_bytes_touched() const {
    int64_t touched = 0;
    for (const std::byte* zone : {memory_.data(), data() + bytes_}) {
      std::vector<std::byte> image(kRedZoneBytes);
      copy_to_host(image.data(), zone, kHere, kRedZoneBytes);
      touched += std::count_if(image.begin(), image.end(), [](std::byte b) { return b != kRedZone; });
    }
    return touched;
  }

 private:
  int64_t bytes_;
  Memory memory_;
};

// The buffers of a case and one variant. What a run writes is filled anew for each; inputs and red zones are not, so that they show at the
// end what any run did to them.
class Bench {
 public:
  Bench(const OpCase& c, const std::string& variant, uint64_t seed)
      : c_(c), seed_(seed), scratch_(c.scratch_bytes ? c.scratch_bytes(variant) : 0) {
    scratch_.guard();
    for (const OpTensor& t : c.tensors) {
      buffers_.emplace_back(c.bytes_at_launch(t));
      pointers_.push_back(buffers_.back().data());
      buffers_.back().guard();
      if (t.role == Role::input) set_content(buffers_.size() - 1);
    }
  }
  // `hog` may be null.
  void run(OpContext& context, const gpt2::cuda::Stream& stream, const std::string& variant, Poison poison, Hog* hog) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (c_.tensors[i].role == Role::output) buffers_[i].set(poison, seed_ + i);
      if (c_.tensors[i].role == Role::update) set_content(i);
    }
    scratch_.set(poison, seed_ + buffers_.size());
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
    if (hog != nullptr) hog->start(++seed_);
    c_.launch(context, variant, pointers_, scratch_.data());
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess && launch_error_.empty())
      launch_error_ = cudaGetErrorString(error);
    if (hog != nullptr) hog->end_behind(stream);
    stream.synchronize();
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());  // work on a stream that is not ours counts too
  }
  // Bytes that some run touched and may not.
  int64_t red_zone_bytes_touched() const {
    int64_t n = scratch_.red_zone_bytes_touched();
    for (const Guarded& buffer : buffers_) n += buffer.red_zone_bytes_touched();
    return n;
  }
  int64_t input_bytes_changed() const {
    int64_t n = 0;
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (const OpTensor& t = c_.tensors[i]; t.role == Role::input)
        for (const Part& p : parts(i)) n += count_different(kHere, p.here, t.content.data() + p.offset, p.bytes, 1);
    return n;
  }
  // Of every tensor that is no input, as the last run left it; a case with a judge gets its inputs too.
  std::vector<Memory> results() const {
    std::vector<Memory> out;
    for (size_t i = 0; i < buffers_.size(); ++i) out.push_back(c_.tensors[i].role == Role::input && !c_.judge ? Memory() : content(i));
    return out;
  }
  int64_t different_from(std::span<const Memory> results) {
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (const OpTensor& t = c_.tensors[i]; t.role != Role::input)
        for (const Part& p : parts(i)) any_different_.look(p.here, results[i].data() + p.offset, p.bytes);
    if (!any_different_.found()) return 0;
    int64_t n = 0;
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (const OpTensor& t = c_.tensors[i]; t.role != Role::input)
        for (const Part& p : parts(i))
          n += count_different(kHere, p.here, results[i].data() + p.offset, p.bytes,
                               t.element == Element::split ? 1 : bytes_of_element(t.element));
    return n;
  }
  // As the last run left it.
  Memory content(size_t i) const {
    const OpTensor& t = c_.tensors[i];
    return t.stretched ? gathered(buffers_[i].data(), kHere, bytes_of_element(t.element), c_.stretches) : buffers_[i].content();
  }
  // Where the launch has it.
  void* data(size_t tensor) const { return pointers_[tensor]; }
  const std::string& launch_error() const { return launch_error_; }

 private:
  // Bytes of a buffer that the case knows, and where it has them.
  struct Part {
    std::byte* here;
    int64_t offset, bytes;
  };
  std::vector<Part> parts(size_t i) const {
    const OpTensor& t = c_.tensors[i];
    if (!t.stretched) return {{buffers_[i].data(), 0, t.byte_count()}};
    const int64_t width = bytes_of_element(t.element);
    std::vector<Part> out;
    int64_t offset = 0;
    for (const Stretch& s : c_.stretches.all) {
      out.push_back({buffers_[i].data() + s.first * width, offset, s.count * width});
      offset += s.count * width;
    }
    return out;
  }
  void set_content(size_t i) const {
    const OpTensor& t = c_.tensors[i];
    if (t.stretched)
      spread(buffers_[i].data(), t.content, bytes_of_element(t.element), c_.stretches);
    else
      buffers_[i].set(t.content);
  }

  const OpCase& c_;
  uint64_t seed_;
  Guarded scratch_;
  std::vector<Guarded> buffers_;
  std::vector<void*> pointers_;
  AnyDifferent any_different_{kHere};
  std::string launch_error_;
};

// Elements that still hold the NaN poison, all bits set: no arithmetic produces that pattern on these
// devices. Of split ones the upper halves alone are asked: a lower byte may be all ones, and one that nobody wrote differs between runs on
// other poison.
int64_t elements_unwritten(const OpCase& c, std::span<const Memory> results) {
  int64_t n = 0;
  for (size_t i = 0; i < c.tensors.size(); ++i)
    if (const OpTensor& t = c.tensors[i]; t.role == Role::output) {
      const int64_t width = t.element == Element::split ? kBytesOfUpperHalf : bytes_of_element(t.element);
      n += count_all_ones(kHere, results[i].data(), t.count() * width, width);
    }
  return n;
}

// What is there for its size alone: its smaller shapes are repeated more often, and their limits were asked whether they can refuse.
bool is_huge(const OpCase& c) {
  return c.stretches || std::any_of(c.tensors.begin(), c.tensors.end(), [](const OpTensor& t) { return t.count() > int64_t{1} << 30; });
}

// Whether calls still work: a kernel that faulted leaves a context in which none does.
bool device_works() {
  (void)cudaGetLastError();
  return cudaDeviceSynchronize() == cudaSuccess;
}

// Attention comes behind everything else, so that PlansAhead has the time of all other checks.
std::vector<OpSizes> attention_last(const std::vector<std::string>& names) {
  std::vector<OpSizes> sizes, of_attention;
  for (const std::string& name : names) {
    OpSizes& others = sizes.emplace_back(sizes_of(name));
    OpSizes& attention = of_attention.emplace_back();
    attention.name = others.name;
    attention.ways = others.ways;
    attention.attentions.swap(others.attentions);
  }
  std::ranges::move(of_attention, std::back_inserter(sizes));
  return sizes;
}

// Builds the library's plans of attention in a thread of its own, beside the ops that come before it: seconds of one core's work per shape, for
// which the checks of attention would wait (21.8 of 42.8 s on an H100, 2026-11-27; 13.3 of 33.7 s the next day, when attention still came
// before the large sizes). Whoever needs a plan that is not there yet builds it, or waits for the one who does.
class PlansAhead {
 public:
  PlansAhead(const OpTrainer& trainer, std::vector<gpt2::VariantInfo> variants, const std::vector<OpSizes>& sizes) {
    if (std::ranges::none_of(variants, [](const gpt2::VariantInfo& v) { return v.slot == "attention_plan"; })) return;
    std::vector<OpSizes::Attention> shapes;
    for (const OpSizes& s : sizes) std::ranges::copy_if(s.attentions, std::back_inserter(shapes), &OpSizes::Attention::with_cudnn);
    thread_ = std::thread([this, &trainer, variants = std::move(variants), shapes = std::move(shapes)] {
      for (const OpSizes::Attention& z : shapes)
        for (const gpt2::VariantInfo& slot : variants)
          for (const std::string& variant : slot.names)
            if (z.every_plan || slot.slot != "attention_plan")
              build(trainer, slot.slot, variant, {.B = z.B, .T = z.T, .C = z.NH * z.HS, .NH = z.NH});
    });
  }
  ~PlansAhead() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  // What is asked is how much scratch a launch takes, which only a plan knows.
  void build(const OpTrainer& t, const std::string& slot, const std::string& variant, const OpShape& shape) {
    if (slot == "attention_forward") ask([&] { t.attention_forward_scratch(variant, shape); });
    if (slot == "attention_backward") ask([&] { t.attention_backward_scratch(variant, shape); });
    if (slot != "attention_plan") return;
    ask([&] { t.planned_attention_forward_scratch(variant, shape); });
    ask([&] { t.planned_attention_backward_scratch(variant, shape); });
  }
  template <class Question>
  void ask(const Question& question) {
    try {
      if (!ended_) question();
    } catch (const std::exception&) {  // the check of this variant says it
    }
  }

  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

class OpChecks {
 public:
  explicit OpChecks(const OpGateOptions& options)
      : options_(options), trainer_(ops_of(options.trainer)), variants_(trainer_.variants()), dog_(options.on_hang) {
    for (const std::string& rate : trainer_.rates()) contexts_.emplace_back(rate, trainer_.context(rate, stream_.get()));
  }

  GateReport run() {
    report_.trainer = trainer_.name();
    report_.matmul = fmt::format("{}", fmt::join(trainer_.rates(), " and "));
    report_.device = device_facts().name;
    report_.workload = fmt::format("single ops at {} sizes", fmt::join(options_.sizes, " and "));
    report_.seed = options_.seed;
    std::vector<OpSizes> all_sizes = attention_last(options_.sizes);
    std::optional<PlansAhead> plans;
    if (options_.with_answers) plans.emplace(trainer_, variants_, all_sizes);
    try {
      for (OpSizes& sizes : all_sizes) {
        for (const std::string& shape : leave_out_what_needs_more(sizes, gpt2::cuda::device_info().memory_free_bytes))
          report_.notes.push_back(shape + ": not checked: this device has too little free memory");
        if (options_.only.empty()) check_at(sizes, "");
        for (const std::string& op : options_.only) check_at(sizes, op);
      }
      note_refusals();
    } catch (const DeviceLost& lost) {
      report_.notes.push_back(fmt::format("what follows {} was not checked: the device takes no more calls", lost.after));
    }
    return std::move(report_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }
  PartTime& time_of(const std::string& op) {
    const auto there = std::ranges::find(report_.part_times, op, &PartTime::part);
    return there != report_.part_times.end() ? *there : report_.part_times.emplace_back(PartTime{.part = op});
  }

  struct DeviceLost {
    std::string after;
  };
  struct Baseline {  // made by the first variant that runs at the shape
    bool made = false;
    std::map<std::string, ErrorMetrics> errors;      // per tensor
    std::map<std::string, Tolerance> fakes_refused;  // per tensor, the limit under which every fake was
  };
  struct Record {
    int64_t ran = 0;
    std::vector<std::string> refused;  // shape and reason
    bool by_machine = false;           // the last refusal
  };

  // One op, or all if `only` is empty.
  void check_at(const OpSizes& sizes, const std::string& only) {
    Clock::time_point asked = Clock::now();  // since when the next case is made
    for_each_case(trainer_, sizes, {.space = kHere, .seed = options_.seed, .only = only, .with_answers = options_.with_answers},
                  [&](const OpCase& c) {
                    PartTime& time = time_of(c.op);
                    time.cases_s += seconds_since(asked);
                    const Clock::time_point begin = Clock::now();
                    check(c);
                    time.checks_s += seconds_since(begin);
                    asked = Clock::now();
                  });
  }

  void check(const OpCase& c) {
    if (options_.progress && c.op != current_op_) options_.progress(c.op);
    current_op_ = c.op;
    const std::vector<std::string> names = variants_of(variants_, c);
    for (const auto& [rate, context] : contexts_) {
      if (&rate != &contexts_.front().first && !c.matmul) continue;
      if (c.least_budget(rate) >= kFakeNoise / 2) {
        report_.notes.push_back(
            fmt::format("{} {}: not judged in {}, which loses too much on these inputs to tell right from wrong", c.op, c.shape, rate));
        continue;
      }
      Baseline baseline;
      for (const std::string& variant : names) check_or_fail(c, variant, rate, *context, baseline);
    }
  }

  // What a launch throws fails its check; the cases after it go on where the device does.
  void check_or_fail(const OpCase& c, const std::string& variant, const std::string& rate, OpContext& context, Baseline& baseline) {
    const std::string name = c.op + (variant.empty() ? "" : "/" + variant);
    const Watchdog::Watched watched(&dog_, name + " error, launch, " + c.shape);
    try {
      check_variant(c, variant, name, rate, context, baseline);
    } catch (const std::exception& e) {
      const bool lost = !device_works();
      report_.add(must_be_zero(name + " error", "launch", 1, lost ? "faults" : "errors", c.shape + ": " + e.what()));
      if (lost) throw DeviceLost{name};
    }
  }

  void check_variant(const OpCase& c, const std::string& variant, const std::string& name, const std::string& rate, OpContext& context,
                     Baseline& baseline) {
    const std::string detail = c.shape + (rate == "tf32" ? ", tf32" : "");
    Record& record = records_[name];
    const auto refuse = [&](const char* why, bool by_machine) {
      record.refused.push_back(fmt::format("{}: {}", detail, why));
      record.by_machine = by_machine;
    };
    std::unique_ptr<Bench> bench;
    try {
      bench = std::make_unique<Bench>(c, variant, options_.seed + 1);
      // Of finite numbers where others are asked for: what is not written is one.
      bench->run(context, stream_, variant, c.not_finite ? Poison::garbage : Poison::nan, nullptr);
    } catch (const stepscope::InputError& e) {
      return refuse(e.what(), false);
    } catch (const stepscope::MachineError& e) {
      return refuse(e.what(), true);
    }
    ++record.ran;
    if (c.not_finite) return c.judge(bench->results(), name, detail, report_);
    const bool is_baseline = !std::exchange(baseline.made, true);
    const std::vector<Memory> first = bench->results();
    const bool repeats = trainer_.repeats(c.op, variant);
    if (repeats) {
      int64_t different = 0;
      const int most = c.stretches ? 1 : is_huge(c) ? 2 : options_.repeats;  // a run of stretches clears and fills 60 GB
      for (int i = 0; i < std::min(options_.repeats, most); ++i) {
        bench->run(context, stream_, variant, Poison::nan, options_.with_answers && i % 2 == 1 ? &hog_ : nullptr);
        different += bench->different_from(first);
      }
      report_.add(must_be_zero(name + " repeat", "all outputs", different, "elements", detail));
    }
    bench->run(context, stream_, variant, Poison::garbage, nullptr);
    if (repeats) report_.add(must_be_zero(name + " poison", "all outputs", bench->different_from(first), "elements", detail));
    report_.add(must_be_zero(name + " unwritten", "all outputs", elements_unwritten(c, first), "elements", detail));
    report_.add(must_be_zero(name + " red zone", "all buffers", bench->red_zone_bytes_touched(), "bytes", detail));
    report_.add(must_be_zero(name + " inputs", "all inputs", bench->input_bytes_changed(), "bytes", detail));
    report_.add(must_be_zero(name + " launch error", "first run", !bench->launch_error().empty(), "launches",
                             bench->launch_error().empty() ? detail : bench->launch_error()));
    if (!options_.with_answers) return;
    const double floor = c.least_budget(rate);
    for (size_t i = 0; i < c.tensors.size(); ++i) {
      const OpTensor& t = c.tensors[i];
      if (t.role == Role::input) continue;
      const View want = view(t.want);
      const ErrorMetrics metrics = compare(kHere, view(first[i], t.element), want, t.rows, t.columns);
      const ErrorMetrics* base = is_baseline ? nullptr : &baseline.errors[t.name];
      if (is_baseline) baseline.errors[t.name] = metrics;
      const Tolerance limit = t.rounding ? op_limit(rounding_limit(t.rounding), base) : op_limit(floor, base);
      report_.add(from_metrics(name + " error", t.name, metrics, limit, detail));
      if (!repeats) {  // other bits are allowed, other answers are not: what the poison was may not show
        const Memory other = bench->content(i);
        report_.add(from_metrics(name + " error", t.name, compare(kHere, view(other, t.element), want, t.rows, t.columns), limit,
                                 detail + ", other poison"));
      }
      if (t.rounding.count > 0 && t.rounding.inside == 0)
        report_.add(make_result(
            name + " element", t.name,
            {{"worst element", worst_element(kHere, view(first[i], t.element), want, t.count()), element_limit(t.rounding)}}, detail));
      if (is_huge(c)) continue;
      if (std::optional<CheckResult> lean = check_lean(c, t, view(first[i], t.element), variant, rate, name, detail))
        report_.add(std::move(*lean));
      ask_fakes(name, t, limit, detail, baseline);
    }
    if (c.judge) c.judge(first, name, detail, report_);
    if (asks_candidates(c, variant))
      for (CheckResult& r : check_candidates(kHere, c, floor, name, detail, [&](int number) {
             return candidate(c, *bench, variant, context, static_cast<size_t>(number));
           }))
        report_.add(std::move(r));
  }

  // The case once more, its products by one of the algorithms among which an engine searches. Each candidate has an engine, which keeps what it
  // took for a product.
  Candidate candidate(const OpCase& c, Bench& bench, const std::string& variant, OpContext& context, size_t number) {
    std::unique_ptr<OpContext>& one = searching_[number];
    if (!one) one = trainer_.searching_context(context);
    if (!one) return {};
    OpContext& searching = *one;
    trainer_.take_candidate(searching, number);
    Candidate out;
    try {
      bench.run(searching, stream_, variant, Poison::nan, nullptr);
      out.launched = true;
    } catch (const std::exception&) {
      if (!device_works()) throw;
    }
    const OpTrainer::Candidates most = trainer_.most_candidates(searching);
    out.of = most.all, out.offered = most.offered;
    for (size_t i = 0; i < c.tensors.size(); ++i) out.results.push_back({bench.data(i), c.tensors[i].element, c.tensors[i].count()});
    return out;
  }

  // Once per tensor and limit: what is refused under one is refused under a narrower one.
  void ask_fakes(const std::string& name, const OpTensor& t, const Tolerance& limit, const std::string& detail, Baseline& baseline) {
    const auto asked = baseline.fakes_refused.find(t.name);
    if (asked != baseline.fakes_refused.end() && limit.norm <= asked->second.norm && limit.row <= asked->second.row &&
        limit.column <= asked->second.column)
      return;
    const std::vector<std::string> accepted = accepted_fakes(kHere, view(t.want), t.rows, t.columns, limit);
    for (const std::string& fake : accepted)
      report_.add(must_be_zero("able to fail", name + " " + t.name, 1, "fakes", fake + " would pass, " + detail));
    if (accepted.empty()) baseline.fakes_refused[t.name] = limit;
  }

  // A refusal is an answer; a variant that gives no other was not checked, and must not look as if.
  void note_refusals() {
    for (const auto& [name, record] : records_) {
      if (record.ran == 0 && !record.by_machine)
        report_.add(must_be_zero(name + " ran", "all shapes", 1, "variants", "refused: " + record.refused.back()));
      if (record.ran == 0 && record.by_machine)
        report_.notes.push_back(fmt::format("{} was not checked: this machine refuses it ({})", name, record.refused.back()));
      else
        for (const std::string& refusal : record.refused) report_.notes.push_back(fmt::format("{} refused: {}", name, refusal));
    }
  }

  const OpGateOptions& options_;
  const OpTrainer& trainer_;
  const std::vector<gpt2::VariantInfo> variants_;
  gpt2::cuda::Stream stream_;
  Hog hog_;
  std::vector<std::pair<std::string, std::unique_ptr<OpContext>>> contexts_;
  std::map<size_t, std::unique_ptr<OpContext>> searching_;  // by candidate; they use the workspace of a context above
  std::map<std::string, Record> records_;
  std::string current_op_;
  GateReport report_;
  Watchdog dog_;
};

std::string cuda_version(int64_t version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

GateReport check_ops(const OpGateOptions& options) {
  if (const auto why = gpt2::cuda::why_no_device()) throw stepscope::MachineError("the op checks need a GPU: " + *why);
  return OpChecks(options).run();
}

DeviceFacts device_facts() {
  const gpt2::cuda::DeviceInfo info = gpt2::cuda::device_info();
  return {info.name, info.uuid, "CUDA " + cuda_version(info.driver_version), cuda_version(info.runtime_version),
          std::to_string(cublasLtGetVersion())};
}

}  // namespace gate
