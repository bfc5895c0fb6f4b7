// The gate for one build of the fp32 trainer, patched or not: every op, then the whole model.
#include "tests/bugs/gate_program.h"

#include "experiments/gate/model_gate.h"
#include "experiments/gate/op_gate.h"
#include "fp32/trainer.h"

int main(int argc, char** argv) {
  return gate_program::run(argc, argv, [](uint64_t seed) {
    gate::OpGateOptions ops;
    ops.seed = seed;
    int64_t failed = gate_program::print_failures(gate::check_ops(ops));
    gate::ModelGateOptions model;
    model.seed = seed;
    failed += gate_program::print_failures(
        gate::check_model([](const gpt2::TrainerOptions& o) { return fp32::make_fp32_trainer(o); }, model));
    return failed;
  });
}
