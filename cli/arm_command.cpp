// `stepscope arm` (hidden): a trainer that steps when told to, one side of an experiment. Speaks
// "stepscope.arm/3" (experiments/runner/arm.h). Anything a library prints to stdout goes to stderr: stdout
// carries answers only.
//
// --plant-pct P makes every step take P% longer, to prove that the procedure would see it. The host waits
// between the end of a step and the start of the next, so the device is idle for exactly that long; for this
// the steps may not overlap, and the arm it is compared with must run with --serial (the same loop with P =
// 0).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "build_info.inc"
#include "cli/commands.h"
#include "cli/trainer_flags.h"
#include "cli/values.h"
#include "experiments/gate/plant_spec.h"
#include "experiments/gate/planted_work.h"
#include "experiments/gate/step_audit.h"
#include "experiments/gate/timed_steps.h"
#include "gpt2/data/token_source.h"
#include "gpt2/op_range.h"
#include "gpt2/step_batches.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "experiments/gate/device_hooks.h"
#include "gpt2/cuda/nvtx_ranges.h"
#endif

namespace cli {
namespace {

using nlohmann::ordered_json;

struct ArmFlags {
  TrainerFlags trainer;
  bool serial = false;
  double plant_pct = 0;
  std::string plant_gpu;
};

class SteppingTrainer {
 public:
  SteppingTrainer(gpt2::Trainer& trainer, const gpt2::LoopOptions& loop, const ArmFlags& f, const gate::DeviceHooks* device)
      : trainer_(trainer),
        loop_(loop),
        device_(device),
        serial_(f.serial || f.plant_pct > 0 || !f.plant_gpu.empty()),
        plant_(f.plant_pct / 100),
        batches_(trainer.options(), loop.accumulation) {
    const gpt2::TrainerOptions& t = trainer.options();
    source_ = gpt2::open_token_source(loop.data, {t.batch_size, t.seq_len, t.model.vocab_size, loop.seed, loop.shuffle});
    if (loop.overfit) batches_.read(*source_);
  }

  ordered_json steps(int64_t count) {
    Block block(device_);
    waited_ns_ = 0;  // the gap before a block is not of our making; its first step is left out
    for (int64_t i = 0; i < count; ++i) take_step(block, i == 0);
    return drain(block);
  }

  // Steps until the seconds and the steps of `settle` are over, then until those of `measure` are.
  ordered_json run(double settle_s, int64_t settle_steps, double measure_s, int64_t measure_steps) {
    // A step's time begins at the end of the one before. After earlier steps (those that sized a plant) the first one here would hold the rest
    // in between, which is neither settling nor where `began_ns` says that it is.
    if (done_ > 0) steps(1);
    Block block(device_);
    waited_ns_ = 0;
    const int64_t began_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
    // A hair more than asked: the runner adds the times up in another order.
    const auto take_until = [&](double ns, int64_t steps) {
      const double begin_ns = block.sum_ns;
      const auto begin = static_cast<int64_t>(block.times.size());
      while (static_cast<int64_t>(block.times.size()) - begin < steps || block.sum_ns - begin_ns < ns * (1 + 1e-9))
        take_step(block, enqueued_ == done_ && block.times.empty());
    };
    take_until(settle_s * 1e9, settle_steps);
    take_until(measure_s * 1e9, measure_steps);
    ordered_json out{{"began_ns", began_ns}};
    out.update(drain(block));
    return out;
  }

  // Takes a few steps to know how long one is, and from then on does so much work after each. Returns what was sized, for the answer "ready".
  ordered_json plant(std::unique_ptr<gate::PlantedWork> work, const gate::PlantSpec& spec) {
    constexpr int kSteps = 5;
    steps(kSteps);
    std::vector<double> own(own_ns_.end() - (kSteps - 1), own_ns_.end());  // the first holds what a start costs
    std::nth_element(own.begin(), own.begin() + kSteps / 2 - 1, own.end());
    const double step_ns = own[kSteps / 2 - 1];
    const double ns = work->take(step_ns * spec.percent / 100);
    work_ = std::move(work);
    return {{"kind", spec.kind}, {"percent", spec.percent}, {"step_ns", step_ns}, {"ns", ns}};
  }

  int64_t next_step() const { return enqueued_ + 1; }
  gpt2::AdamW adamw() const {
    gpt2::AdamW a = loop_.adamw;
    a.learning_rate = loop_.learning_rate.at(std::min(enqueued_, loop_.learning_rate.total - 1));
    return a;
  }

 private:
  // The steps of one answer.
  struct Block {
    explicit Block(const gate::DeviceHooks* device) : clock(device) {}
    ordered_json times = ordered_json::array(), losses = ordered_json::array();
    double sum_ns = 0;
    gate::BlockClock clock;
  };

  // Queues a step, and finishes the oldest where two are unfinished.
  void take_step(Block& block, bool first) {
    if (serial_ && !first) wait_planted();
    if (work_ && !first) work_->run();
    if (!loop_.overfit) batches_.read(*source_);
    {
      gpt2::StepRange range(enqueued_ + 1);
      trainer_.enqueue_step({enqueued_ + 1, batches_.all(), adamw()});
    }
    ++enqueued_;
    if (serial_ || enqueued_ - done_ == 2) finish_step(block);
  }

  void finish_step(Block& block) {
    const gpt2::StepOutcome o = trainer_.finish_step();
    block.clock.step_done(o.time_ns);
    ++done_;
    block.times.push_back(o.time_ns);
    block.sum_ns += o.time_ns;
    block.losses.push_back(o.loss);  // NaN becomes null, which the runner takes for what it is
    own_ns_.push_back(o.time_ns - waited_ns_);
    if (own_ns_.size() > 32) own_ns_.pop_front();
  }

  ordered_json drain(Block& block) {
    while (done_ < enqueued_) finish_step(block);
    return {{"times_ns", std::move(block.times)}, {"losses", std::move(block.losses)}, {"audit", gate::to_json(block.clock.end())}};
  }

  void wait_planted() {
    waited_ns_ = 0;
    if (plant_ <= 0 || own_ns_.size() < 4) return;
    std::vector<double> own(own_ns_.begin(), own_ns_.end());
    std::nth_element(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(own.size() / 2), own.end());
    const auto begin = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::nano> wanted(plant_ * own[own.size() / 2]);
    while (std::chrono::steady_clock::now() - begin < wanted) {
    }
    waited_ns_ = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
  }

  gpt2::Trainer& trainer_;
  const gpt2::LoopOptions& loop_;
  const gate::DeviceHooks* device_;
  bool serial_;
  double plant_;
  std::unique_ptr<gpt2::TokenSource> source_;
  gpt2::StepBatches batches_;
  int64_t enqueued_ = 0, done_ = 0;
  double waited_ns_ = 0;
  std::unique_ptr<gate::PlantedWork> work_;
  std::deque<double> own_ns_;  // of the last steps, without what was planted
};

class Answers {
 public:
  Answers() : stream_(fdopen(dup(STDOUT_FILENO), "w")) {
    if (!stream_) throw std::runtime_error("stdout is closed: an arm answers there");
    std::fflush(stdout);
    dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  ~Answers() { std::fclose(stream_); }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  void give(const ordered_json& answer) {
    fmt::print(stream_, "{}\n", answer.dump());
    std::fflush(stream_);
  }

 private:
  std::FILE* stream_;
};

ordered_json again(std::unique_ptr<gpt2::Trainer> trainer, const TrainerFlags& flags, const gpt2::TrainerOptions& options,
                   int64_t first_step, const gpt2::AdamW& adamw, int64_t micro_batches) {
  gate::AgainOptions o;
  if (!(std::cin >> o.seed)) throw stepscope::InputError("again: expected a seed");
  o.first_step = first_step;
  o.adamw = adamw;
  o.micro_batches = micro_batches;
  o.deterministic = flags.trainer != "mixed" || options.deterministic;  // the other trainers always repeat
  ordered_json checks = ordered_json::array();
  for (const gate::CheckResult& r : gate::check_steps_again(
           std::move(trainer), [&] { return make_trainer(flags, options); }, o))
    checks.push_back({{"name", r.name},
                      {"tensor", r.tensor},
                      {"passed", r.passed},
                      {"detail", fmt::format("{:.3g} > {:.3g} {}", r.error, r.budget, r.unit)}});
  return {{"checks", std::move(checks)}};
}

// Null where nothing was to be planted.
ordered_json plant_gpu_work([[maybe_unused]] SteppingTrainer& stepping, const ArmFlags& f, const gpt2::Trainer& trainer) {
  ordered_json planted;
  if (f.plant_gpu.empty()) return planted;
  const auto spec = gate::plant_spec(f.plant_gpu);
  if (!spec)
    throw stepscope::InputError(
        fmt::format("--plant-gpu: found '{}', expected tensor:PCT, dram:PCT or idle:PCT, PCT 0 to 100", f.plant_gpu));
#ifdef STEPSCOPE_WITH_CUDA
  if (f.trainer.trainer != "reference") planted = stepping.plant(gate::make_planted_work(spec->kind), *spec);
#endif
  if (planted.is_null()) throw stepscope::InputError(fmt::format("--plant-gpu: the {} trainer does not run on a GPU", trainer.name()));
  return planted;
}

// The first answer: what this arm is, as the other process checks it.
ordered_json ready(const ArmFlags& f, const TrainerFlags& flags, const gpt2::Trainer& trainer, const ordered_json& planted) {
  ordered_json memory = ordered_json::object();
  for (const gpt2::MemoryItem& m : trainer.memory()) memory[m.name] = m.bytes;
  return {{"ready",
           {{"protocol", "stepscope.arm/3"},
            {"trainer", trainer.name()},
            {"device", trainer.device()},
            {"model", flags.model},
            {"batch_size", flags.batch_size},
            {"seq_len", flags.seq_len},
            {"accumulation", flags.accumulation},
            {"matmul", flags.matmul},
            {"variants", trainer.options().variants},
            {"plant_pct", f.plant_pct},
            {"plant_gpu", planted},
            {"serial", f.serial || f.plant_pct > 0 || !f.plant_gpu.empty()},
            {"memory_bytes", memory},
            {"git_revision", kGitRevision}}}};
}

void serve(const ArmFlags& f, Answers& answers) {
  TrainerFlags flags = f.trainer;
  settle(flags);
  gpt2::LoopOptions loop = loop_options(flags);
  if (flags.lr_total_steps == 0) loop.learning_rate.total = int64_t{1} << 40;  // nobody knows how many steps there will be
  const gpt2::TrainerOptions options = trainer_options(flags);
  gpt2::check_run(options, loop);
  const gate::DeviceHooks* device = nullptr;
#ifdef STEPSCOPE_WITH_CUDA
  gate::DeviceHooks hooks;  // before the trainer: what it changes is told from what was
  if (flags.trainer != "reference") {
    hooks = gate::cuda_device_hooks();
    device = &hooks;
  }
#endif
  std::unique_ptr<gpt2::Trainer> trainer = make_trainer(flags, options);
#ifdef STEPSCOPE_WITH_CUDA
  std::unique_ptr<gpt2::cuda::NvtxRanges> listener;  // as `train` has it: what is compared is what is trained
  if (flags.trainer != "reference") listener = std::make_unique<gpt2::cuda::NvtxRanges>();
  gpt2::set_range_listener(listener.get());
#endif
  SteppingTrainer stepping(*trainer, loop, f, device);
  answers.give(ready(f, flags, *trainer, plant_gpu_work(stepping, f, *trainer)));
  std::string word;
  while (std::cin >> word && (word == "step" || word == "run" || word == "again")) {
    if (word == "again") {
      answers.give(again(std::move(trainer), flags, options, stepping.next_step(), stepping.adamw(), loop.accumulation));
      break;
    }
    if (word == "run") {
      double settle_s = 0, measure_s = 0;
      int64_t settle_steps = 0, measure_steps = 0;
      if (!(std::cin >> settle_s >> settle_steps >> measure_s >> measure_steps) || settle_steps < 0 || measure_steps < 1)
        throw stepscope::InputError("run: expected SETTLE_S SETTLE_STEPS MEASURE_S MEASURE_STEPS, with at least 1 step to measure");
      answers.give(stepping.run(settle_s, settle_steps, measure_s, measure_steps));
      continue;
    }
    int64_t count = 0;
    if (!(std::cin >> count) || count < 1) throw stepscope::InputError("step: expected a number of steps, at least 1");
    answers.give(stepping.steps(count));
  }
  gpt2::set_range_listener(nullptr);
}

}  // namespace

void add_arm_command(Command& app) {
  auto f = std::make_shared<ArmFlags>();
  Command* c = app.add_subcommand("arm", "One side of an experiment: steps on command over stdin and stdout");
  c->group("");
  add_trainer_flags(*c, f->trainer);
  c->add_flag("--serial", f->serial, "start a step only after the one before has ended");
  c->add_option("--plant-gpu", f->plant_gpu, "do work on the GPU after every step: tensor:PCT, dram:PCT or idle:PCT of a step");
  c->add_option("--plant-pct", f->plant_pct, "slow every step down by this many percent")->check(real(0, 1000));
  c->callback([f] {
    Answers answers;
    try {
      serve(*f, answers);
    } catch (const std::exception& e) {
      answers.give({{"error", e.what()}});
      throw;
    }
  });
}

}  // namespace cli
