#include "experiments/energy/measure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "base/errors.h"
#include "base/gpu_meter.h"
#include "base/sustained.h"
#include "base/utc.h"
#include "experiments/energy/captured_step.h"
#include "experiments/energy/probes.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/data/token_source.h"
#include "gpt2/step_batches.h"

namespace energy {
namespace {

using gpt2::cuda::Event;

constexpr double kProbeSettle_s = 1.0;
constexpr double kWarmAgain_s = 2.0;
constexpr double kSpin_s = 5e-3;
// Pauses for the highest clock, as shares of a step and of what copies add to it. A step of 900 W and a product of 1,100 W fit below 600 W.
constexpr double kPauseInStep = 0.6;
constexpr double kPauseBehind = 1.0;

// A queue of launches on one stream, with an event behind each unit.
class OnStream {
 public:
  OnStream(cudaStream_t stream, std::function<void()> launch) : stream_(stream), launch_(std::move(launch)) {}
  Repeated repeated() {
    return {[this] {
              launch_();
              ends_[static_cast<size_t>(queued_++ % 2)].record(stream_);
            },
            [this] { ends_[static_cast<size_t>(finished_++ % 2)].wait(); }};
  }

 private:
  cudaStream_t stream_;
  std::function<void()> launch_;
  std::array<Event, 2> ends_;
  int64_t queued_ = 0, finished_ = 0;
};

// Training as `train` does it, for as long as somebody asks for steps.
class Training {
 public:
  Training(gpt2::Trainer& trainer, const gpt2::LoopOptions& loop)
      : trainer_(trainer), loop_(loop), batches_(trainer.options(), loop.accumulation) {
    const gpt2::TrainerOptions& t = trainer.options();
    source_ = gpt2::open_token_source(loop.data, {t.batch_size, t.seq_len, t.model.vocab_size, loop.seed, loop.shuffle});
  }

  Repeated repeated() {
    return {[this] { trainer_.enqueue_step(next(false)); }, [this] { loss_ = trainer_.finish_step().loss; }};
  }
  // `frozen`: at learning rate 0, so that the step can be repeated for minutes and stays the step of this moment. The arithmetic is the same.
  gpt2::StepPlan next(bool frozen) {
    if (!loop_.overfit || step_ == 0) batches_.read(*source_);
    gpt2::AdamW adamw = loop_.adamw;
    adamw.learning_rate = frozen ? 0 : loop_.learning_rate.at(std::min(step_, loop_.learning_rate.total - 1));
    return {++step_, batches_.all(), adamw};
  }
  double loss() const { return loss_; }
  int64_t steps() const { return step_; }
  const gpt2::Batch& batch() const { return batches_.all().front(); }

 private:
  gpt2::Trainer& trainer_;
  const gpt2::LoopOptions& loop_;
  std::unique_ptr<gpt2::TokenSource> source_;
  gpt2::StepBatches batches_;
  int64_t step_ = 0;
  double loss_ = 0;
};

// Device seconds of one launch, by events over some of them: only to choose how many copies to take.
double seconds_of(const Executable& graph, int launches) {
  const Event begin, end;
  graph.launch();
  begin.record(graph.stream());
  for (int i = 0; i < launches; ++i) graph.launch();
  end.record(graph.stream());
  end.wait();
  return gpt2::cuda::elapsed_ns(begin, end) * 1e-9 / launches;
}

class Measurement {
 public:
  Measurement(gpt2::Trainer& trainer, const gpt2::LoopOptions& loop, const MeasureOptions& options)
      : trainer_(trainer), loop_(loop), o_(options), meter_(options.pci_bus_id), training_(trainer, loop) {}

  Document all() {
    describe();
    train();
    captured_ = std::make_unique<CapturedStep>(trainer_, training_.next(true));
    choose_ops();
    require_training("timing each op");
    measure_ops();
    measure_twice();
    require_training("the copies");
    measure_probes();
    if (o_.alone) measure_alone();
    require_training("the measurement");
    conclude();
    return std::move(d_);
  }

 private:
  void say(const std::string& text) const {
    if (o_.progress) o_.progress(text);
  }

  void describe() {
    d_.run = settings_of(trainer_, loop_);
    d_.run.driver = meter_.limits().driver;
    d_.run.measured_at = stepscope::now_utc();
  }

  // The step that everything is held against: training itself, launched as training launches it.
  void train() {
    say(fmt::format("training for {:.0f} s until the device is warm", o_.warm_s));
    const double warm_s = meter_.run(training_.repeated(), o_.warm_s);
    say("training steps");
    // Twelve steps and more, so that the trainer has allocated all it needs before a step is captured.
    const double length_s = std::max(2 * kClockCycle_s, window_length(warm_s / static_cast<double>(training_.steps())));
    const Window w = meter_.measure(training_.repeated(), 0, length_s);
    StepEnergy& s = d_.step;
    s.joules = w.joules_per_step();
    s.seconds = w.seconds_per_step();
    s.power_w = w.power_w();
    s.sm_clock_mhz = w.sm_clock_mhz;
    s.power_limit_w = meter_.limits().power_limit_w;
    s.max_sm_clock_mhz = meter_.limits().max_sm_clock_mhz;
    s.clock_limited = stepscope::clock_limited(s.power_w, s.sm_clock_mhz, s.power_limit_w, s.max_sm_clock_mhz).value_or(false);
    s.loss_before = training_.loss();
    window_s_ = o_.window_s;
  }

  void choose_ops() {
    groups_ = captured_->groups(o_.by_launch);
    std::vector<std::string> names;
    for (const OpGroup& g : groups_) names.push_back(name(g));
    for (const std::string& wanted : o_.only)
      if (std::find(names.begin(), names.end(), wanted) == names.end())
        throw stepscope::InputError(fmt::format("--only {}: this step has {}", wanted, fmt::join(names, ", ")));
    if (o_.full_clock) pace_ = {kPauseInStep * d_.step.seconds, kPauseBehind * o_.added_share * d_.step.seconds};
    step_graph_ = std::make_unique<Executable>(captured_->step(pace_));
    if (o_.window_s <= 0) window_s_ = window_length(d_.step.seconds * (1 + o_.added_share) + pace_.seconds());
    for (size_t i = 0; i < groups_.size(); ++i) {
      const OpGroup& g = groups_[i];
      const auto launches = static_cast<int64_t>(g.nodes.size());
      // An op alone works on what a step leaves, never on what another op alone has left: norms that add to the residual gradient again and
      // again drive it to infinity, and AdamW alone would take that into the moments.
      step_graph_->launch();
      // Eight in one graph: the launch of a graph takes longer than the smallest ops.
      const double op_s = seconds_of(captured_->alone(g.nodes, 8), 2) / 8;
      copies_.push_back(copies_for(op_s, launches, d_.step.seconds, o_.added_share));
      if (o_.only.empty() || std::find(o_.only.begin(), o_.only.end(), names[i]) != o_.only.end()) ops_.push_back(static_cast<int>(i));
    }
  }

  Window window_of(const Executable& graph) {
    OnStream work(graph.stream(), [&graph] { graph.launch(); });
    return meter_.measure(work.repeated(), o_.settle_s, window_s_);
  }

  void measure_one(int group) {
    if (group == kStepAlone) {
      measured_.push_back({kStepAlone, 0, window_of(*step_graph_)});
      return;
    }
    const auto i = static_cast<size_t>(group);
    const Executable graph = captured_->with_copies(groups_[i].nodes, copies_[i], pace_);
    measured_.push_back({group, static_cast<double>(copies_[i]), window_of(graph)});
  }

  double noise() const {
    const double of_poll = measured_.empty() ? 0 : poll_error(measured_.front().window, meter_.poll_s());
    return window_noise(measured_, of_poll).value_or(of_poll);
  }

  bool is_resolved(int group) const {
    const auto slope = slope_of(measured_, group, noise(), {});
    return slope && resolved(*slope, d_.step.joules);
  }

  void measure_ops() {
    say("the step alone");
    OnStream warm_again(step_graph_->stream(), [this] { step_graph_->launch(); });  // the device waited for the graphs
    meter_.run(warm_again.repeated(), kWarmAgain_s);
    std::vector<int> open = ops_;
    for (int round = 0; round < std::max(o_.rounds, o_.most_rounds) && !open.empty(); ++round) {
      for (const int group : round_order(open, round % 2 == 1)) {
        if (group != kStepAlone)
          say(fmt::format("round {}: {}, {} copies", round + 1, name(groups_[static_cast<size_t>(group)]),
                          copies_[static_cast<size_t>(group)]));
        measure_one(group);
      }
      if (round + 1 >= o_.rounds) std::erase_if(open, [&](int group) { return is_resolved(group); });
    }
  }

  // The step twice in one graph: whether a copy costs what the original does, and nothing else.
  void measure_twice() {
    say("the step with a copy of all of it");
    const Executable graph = captured_->with_copies(captured_->all(), 1, pace_);
    twice_ = window_of(graph);
    measured_.push_back({kStepAlone, 0, window_of(*step_graph_)});
  }

  Window probe(const char* what, cudaStream_t stream, const std::function<void()>& launch) {
    say(fmt::format("probe: {}", what));
    OnStream work(stream, launch);
    return meter_.measure(work.repeated(), kProbeSettle_s, 2 * kClockCycle_s);
  }

  void measure_probes() {
    cudaStream_t stream = captured_->stream();
    // Steps with pauses first: they begin as warm as the steps before them.
    const Pace pace = o_.full_clock ? pace_ : Pace{kPauseInStep * d_.step.seconds, 0};
    const Executable paced_graph = captured_->step(pace);
    say("steps with pauses");
    const Window paced = window_of(paced_graph);
    const Window spin = probe("one thread awake", stream, [&] { queue_spin(kSpin_s, stream); });
    const AtClock full_clock = without_pauses(paced, spin.power_w(), pace.seconds());
    pause_joules_ = o_.full_clock ? spin.power_w() * pace_.seconds() : 0;
    // At the limit the window just before, so that no drift since the training steps counts as the clock's.
    const Window& before = measured_.back().window;
    const AtClock limited{before.joules_per_step(), before.sm_clock_mhz};
    d_.step.clock_exponent = clock_exponent_of(o_.full_clock ? AtClock{d_.step.joules, d_.step.sm_clock_mhz} : limited, full_clock);
    if (!o_.full_clock) {
      d_.step.limited_joules = limited.joules;
      d_.step.limited_mhz = limited.sm_clock_mhz;
    }
    d_.step.full_clock_joules = full_clock.joules;
    d_.step.full_clock_mhz = full_clock.sm_clock_mhz;
    d_.probes.push_back({"spin", {spin.power_w(), 0, 0, spin.sm_clock_mhz}});
    try {
      {
        const CopyProbe copy;
        const Window w = probe("copy in device memory", stream, [&] { copy.queue(stream); });
        d_.probes.push_back({"copy", {w.power_w(), copy.bytes() / w.seconds_per_step(), 0, w.sm_clock_mhz}});
      }
      const ProductProbe product(trainer_.options().matmul);
      const Window w = probe("matrix product", stream, [&] { product.queue(stream); });
      d_.probes.push_back(
          {"product", {w.power_w(), product.bytes() / w.seconds_per_step(), product.flops() / w.seconds_per_step(), w.sm_clock_mhz}});
      d_.coefficients = coefficients_of(d_.probes[0].probe, d_.probes[1].probe, d_.probes[2].probe);
      if (!d_.coefficients) d_.coefficients_absent = "a probe drew no more than an idle GPU";
    } catch (const stepscope::MachineError& e) {
      d_.coefficients_absent = e.what();  // a model that fills the memory leaves none for the probes
    }
  }

  void measure_alone() {
    for (const int group : ops_) {
      const auto i = static_cast<size_t>(group);
      say(fmt::format("alone: {}", name(groups_[i])));
      step_graph_->launch();  // the op works on what a step leaves
      const Executable graph = captured_->alone(groups_[i].nodes, copies_[i]);
      const Window w = window_of(graph);
      const auto copies = static_cast<double>(copies_[i]);
      alone_.push_back({group, copies, w});
    }
  }

  // What the copies wrote over must not have reached the weights: the step that is measured is still a training step, on numbers, whose
  // bits toggle as those of training do.
  void require_training(const char* after) {
    step_graph_->launch();
    STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(captured_->stream()));
    d_.step.loss_after = trainer_.evaluate(training_.batch());
    if (!std::isfinite(d_.step.loss_before) || !std::isfinite(d_.step.loss_after))
      throw std::runtime_error(fmt::format("energy: the loss is {} before and {} after {}: these were no training steps",
                                           d_.step.loss_before, d_.step.loss_after, after));
  }

  OpEnergy op_energy(int group, const Slope& slope) const {
    const auto i = static_cast<size_t>(group);
    const OpGroup& g = groups_[i];
    OpEnergy op;
    op.pass = gpt2::name(g.pass);
    op.op = gpt2::name(g.op);
    op.launch = g.launch;
    op.instances = g.instances;
    op.launches = static_cast<int64_t>(g.nodes.size());
    op.copies = static_cast<double>(copies_[i]);
    op.slope = slope;
    op.resolved = resolved(slope, d_.step.joules);
    const bool whole = g.launch < 0 || std::count_if(groups_.begin(), groups_.end(),
                                                     [&](const OpGroup& other) { return other.pass == g.pass && other.op == g.op; }) == 1;
    for (const gpt2::OpWork& work : trainer_.work(loop_.accumulation))
      if (whole && work.pass == g.pass && work.op == g.op) op.flops += work.flops, op.min_bytes += work.min_bytes, op.has_work = true;
    if (d_.step.clock_limited && !o_.full_clock) op.sustained_s = slope.joules / *d_.step.power_limit_w;
    if (op.has_work && d_.coefficients) {
      op.floor = floor_of(op.flops, op.min_bytes, *d_.coefficients);
      op.bound = bound_of(*op.floor, slope.seconds, static_cast<double>(op.launches),
                          d_.step.clock_limited ? d_.step.power_limit_w : std::nullopt);
    }
    for (const Measured& m : alone_) {
      if (m.group != group) continue;
      op.alone_joules = m.window.joules_per_step() / m.copies;
      op.alone_seconds = m.window.seconds_per_step() / m.copies;
      op.alone_sm_clock_mhz = m.window.sm_clock_mhz;
    }
    return op;
  }

  void conclude() {
    StepEnergy& s = d_.step;
    double joules = 0, seconds = 0;
    int64_t steps = 0;
    for (const Measured& m : measured_)
      if (m.group == kStepAlone) joules += m.window.joules_per_step(), seconds += m.window.seconds_per_step(), ++steps;
    s.graph_joules = joules / static_cast<double>(steps) - pause_joules_;
    s.graph_seconds = seconds / static_cast<double>(steps) - pace_.seconds();
    s.twice_over_two =
        (twice_.joules_per_step() - pause_joules_) / (2 * (step_alone_at(measured_, twice_.middle_s()).joules - pause_joules_));
    const double relative = noise();
    std::vector<Slope> slopes;
    for (const int group : ops_) {
      auto slope = slope_of(measured_, group, relative, o_.full_clock ? std::nullopt : s.clock_exponent);
      if (!slope) continue;
      // At one clock for all, the highest: what the step's joules change from there to its own clock, each op's do in proportion.
      if (o_.full_clock) slope->joules_at_step_clock = slope->joules * s.joules / s.graph_joules;
      slopes.push_back(*slope);
      d_.ops.push_back(op_energy(group, *slope));
    }
    d_.closure = close_over(slopes, o_.full_clock ? s.graph_joules : s.joules, false);
    d_.closure_at_step_clock = close_over(slopes, s.joules, true);
    d_.method = {o_.settle_s, window_s_,    o_.added_share, static_cast<int64_t>(measured_.size()),
                 relative,    o_.by_launch, o_.full_clock,  o_.only.empty()};
  }

  gpt2::Trainer& trainer_;
  const gpt2::LoopOptions& loop_;
  const MeasureOptions& o_;
  GpuMeter meter_;
  Training training_;
  Document d_;
  std::unique_ptr<CapturedStep> captured_;
  std::unique_ptr<Executable> step_graph_;
  std::vector<OpGroup> groups_;
  std::vector<int64_t> copies_;
  std::vector<int> ops_;  // indices of the groups that are measured
  std::vector<Measured> measured_, alone_;
  Pace pace_;
  Window twice_;
  double window_s_ = 0, pause_joules_ = 0;
};

}  // namespace

Document measure(gpt2::Trainer& trainer, const gpt2::LoopOptions& loop, const MeasureOptions& options) {
  return Measurement(trainer, loop, options).all();
}

}  // namespace energy
