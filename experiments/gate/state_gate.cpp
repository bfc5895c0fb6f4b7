#include "experiments/gate/state_gate.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "experiments/gate/budgets.h"
#include "experiments/gate/oracle.h"
#include "gpt2/checkpoint.h"

namespace gate {
namespace {

struct Limits {
  Tolerance logits, gradients;
  double loss = 0;
};

// The document says the cosine as well: a tensor that is a little too long everywhere and one that points elsewhere have the same norm of error.
CheckResult with_cosine(std::string tensor, const ErrorMetrics& metrics, const Tolerance& limit) {
  CheckResult result = from_metrics("state", std::move(tensor), metrics, limit);
  result.cosine = metrics.cosine;
  return result;
}

// `Value` is double for the oracle, float for a trainer.
template <typename Value>
void compare_all(GateReport& report, const gpt2::ModelConfig& config, const gpt2::ReferenceState& state, std::span<const Value> logits,
                 double loss, std::span<const Value> gradients, const Limits& limits) {
  report.add(with_cosine("logits", compare<Value, float>(logits, state.logits, state.batch_size * state.seq_len, config.vocab_size),
                         limits.logits));
  report.add(scalar_result("state", "loss", loss, static_cast<double>(state.loss), limits.loss));
  const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
  const std::span<const float> want(state.gradients);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const gpt2::TensorSpan& span = layout[row.id];
    const auto offset = static_cast<size_t>(span.offset), size = static_cast<size_t>(span.size);
    report.add(with_cosine(
        std::string(row.name),
        compare<Value, float>(gradients.subspan(offset, size), want.subspan(offset, size), span.size / span.columns, span.columns),
        limits.gradients));
  }
}

std::string describe(const StateFiles& files, const gpt2::ModelConfig& config, const gpt2::ReferenceState& state) {
  return fmt::format("{} ({}), B={} T={}", files.checkpoint.filename().string(), gpt2::describe(config), state.batch_size, state.seq_len);
}

}  // namespace

GateReport check_oracle_against_state(const StateFiles& files) {
  const gpt2::Checkpoint checkpoint = gpt2::load_checkpoint(files.checkpoint);
  const gpt2::ReferenceState state = gpt2::load_reference_state(files.state, checkpoint.config);
  GateReport report;
  report.trainer = "reference, in double";
  report.matmul = "fp64";
  report.device = "CPU";
  report.workload = describe(files, checkpoint.config, state);
  Oracle oracle(checkpoint.config, state.batch_size, state.seq_len);
  oracle.set(gpt2::State::parameters, checkpoint.parameters);
  const gpt2::Batch batch{state.inputs, state.targets};
  const double loss = oracle.forward_backward({&batch, 1});
  const Tolerance limit = tolerance(kOracleAgainstState);
  compare_all<double>(report, checkpoint.config, state, oracle.logits(), loss, oracle.gradients(), {limit, limit, kOracleAgainstState});
  return report;
}

GateReport check_trainer_against_state(const TrainerFactory& make_trainer, const StateFiles& files, const std::string& trainer_name,
                                       const std::string& matmul, const std::map<std::string, std::string>& variants) {
  const ModelBudgets budgets = budgets_of(trainer_name, matmul);
  const gpt2::Checkpoint checkpoint = gpt2::load_checkpoint(files.checkpoint);
  const gpt2::ReferenceState state = gpt2::load_reference_state(files.state, checkpoint.config);
  const auto trainer = make_trainer(
      {.model = checkpoint.config, .batch_size = state.batch_size, .seq_len = state.seq_len, .matmul = matmul, .variants = variants});
  GateReport report;
  report.trainer = trainer_name;
  report.matmul = matmul;
  report.device = trainer->device();
  report.workload = describe(files, checkpoint.config, state);
  trainer->write(gpt2::State::parameters, checkpoint.parameters);
  std::vector<float> logits(state.logits.size(), NAN), gradients(checkpoint.parameters.size(), NAN);
  const double loss = trainer->forward_backward({state.inputs, state.targets}, logits);
  trainer->read(gpt2::State::gradients, gradients);
  compare_all<float>(report, checkpoint.config, state, logits, loss, gradients,
                     {tolerance(budgets.logits, budgets.slice_factor), tolerance(budgets.gradients, budgets.slice_factor), budgets.loss});
  return report;
}

}  // namespace gate
