// On a GPU: what a captured step consists of, what copies leave alone, and whether joules of ops add up to those of the step.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "base/nvml.h"
#include "experiments/energy/captured_step.h"
#include "experiments/energy/measure.h"
#include "gpt2/cuda/check.h"
#include "tests/trainers/device_fixture.h"

namespace {

class EnergyOf : public trainers::OnDevice {};
STEPSCOPE_FOR_EVERY_TRAINER(EnergyOf);

// Three steps, then one is captured at learning rate 0.
class Stepped {
 public:
  explicit Stepped(const trainers::Kind& kind)
      : options_(trainers::small_options(kind, 2, 64)),
        tokens_(trainers::tokens_of(options_, 5)),
        trainer_(trainers::lively_trainer(kind, options_)) {
    for (int i = 0; i < 3; ++i) {
      trainer_->enqueue_step(plan(3e-4f));
      trainer_->finish_step();
    }
  }
  gpt2::StepPlan plan(float learning_rate) {
    gpt2::AdamW adamw;
    adamw.learning_rate = learning_rate;
    adamw.weight_decay = 0.1f;
    return {++step_, {&batch_, 1}, adamw};
  }
  gpt2::Trainer& trainer() { return *trainer_; }
  const gpt2::Batch& batch() const { return batch_; }

 private:
  gpt2::TrainerOptions options_;
  reference_test::Tokens tokens_;
  gpt2::Batch batch_{tokens_.inputs, tokens_.targets};
  std::unique_ptr<gpt2::Trainer> trainer_;
  int64_t step_ = 0;
};

TEST_P(EnergyOf, EveryNodeOfACapturedStepIsAnOps) {
  Stepped stepped(kind());
  const energy::CapturedStep step(stepped.trainer(), stepped.plan(0));
  EXPECT_GT(step.nodes(), 40);
  EXPECT_EQ(step.nodes_outside(), 0);
  int64_t placed = 0;
  std::vector<std::string> names;
  for (const energy::OpGroup& g : step.groups(false)) {
    placed += static_cast<int64_t>(g.nodes.size());
    names.push_back(energy::name(g));
    if (g.op == gpt2::Op::attention) {
      EXPECT_EQ(g.instances, 2) << names.back();  // two layers
    }
  }
  EXPECT_EQ(placed, step.nodes());
  for (const char* op : {"encoder/embedding", "forward/qkv", "forward/attention", "classifier/loss", "backward/attention", "backward/qkv",
                         "optimizer/grad_norm", "optimizer/adamw", "other/copy"})
    EXPECT_THAT(names, ::testing::Contains(op));
}

// Every op's copies run behind the step and alone, and neither reaches the weights: they are bit for bit what they were.
TEST_P(EnergyOf, CopiesOfEveryOpLeaveTheWeightsAlone) {
  Stepped stepped(kind());
  gpt2::Trainer& trainer = stepped.trainer();
  const std::vector<float> before = trainers::read_state(trainer, gpt2::State::parameters);
  const double loss = trainer.evaluate(stepped.batch());
  const energy::CapturedStep step(trainer, stepped.plan(0));
  const auto run = [&](const energy::Executable& graph, const std::string& what) {
    graph.launch();
    ASSERT_EQ(cudaStreamSynchronize(step.stream()), cudaSuccess) << what;
  };
  for (const bool by_launch : {false, true}) {
    for (const energy::OpGroup& g : step.groups(by_launch)) {
      run(step.with_copies(g.nodes, 3), energy::name(g));
      run(step.alone(g.nodes, 3), energy::name(g) + " alone");
    }
  }
  run(step.with_copies(step.all(), 1), "the whole step twice");
  run(step.step(), "step");
  EXPECT_TRUE(trainers::same_bits(trainers::read_state(trainer, gpt2::State::parameters), before));
  EXPECT_EQ(trainer.evaluate(stepped.batch()), loss);
}

// The joules of all ops of d12 at B=4 against those of training: about a minute.
TEST(EnergyOfD12, OpsAddUpToTheStepWithinTenPercent) {
  if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  char pci[32] = {};
  ASSERT_EQ(cudaDeviceGetPCIBusId(pci, sizeof pci, 0), cudaSuccess);
  std::string why;
  const auto device = stepscope::nvml::Device::open(why, pci);
  if (!device) GTEST_SKIP() << why;
  if (const auto joules = device->energy_mj(); !joules) GTEST_SKIP() << joules.why_not;
  gpt2::TrainerOptions options;
  options.model = gpt2::model_from_name("d12");
  options.matmul = "bf16";
  const auto trainer = mixed::make_mixed_trainer(options);
  trainer->write(gpt2::State::parameters, gpt2::init_parameters(options.model, 1337));
  gpt2::LoopOptions loop;
  loop.data = {"synthetic"};
  loop.learning_rate.total = 1 << 20;
  energy::MeasureOptions how;
  how.warm_s = 4;
  how.settle_s = 0.4;
  how.window_s = energy::kClockCycle_s;
  how.most_rounds = 1;
  how.pci_bus_id = pci;
  const energy::Document d = energy::measure(*trainer, loop, how);
  fmt::print("{}", energy::table(d));
  EXPECT_LT(std::abs(d.closure.not_placed_share()), 0.10);
  ASSERT_TRUE(d.step.twice_over_two);
  EXPECT_NEAR(*d.step.twice_over_two, 1.0, 0.02);
  EXPECT_NEAR(d.step.graph_joules / d.step.joules, 1.0, 0.05);
  ASSERT_TRUE(d.coefficients) << d.coefficients_absent;
  for (const energy::OpEnergy& op : d.ops) {
    EXPECT_GT(op.slope.joules, -3 * op.slope.joules_error) << op.pass << "/" << op.op;
    EXPECT_GT(op.slope.sm_clock_mhz.value_or(0), 300) << op.pass << "/" << op.op;
  }
}

}  // namespace
