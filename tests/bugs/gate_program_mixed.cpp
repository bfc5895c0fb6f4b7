// The gate for one build of the mixed trainer, patched or not: every op, then the whole model with the defaults, with its own attention,
// and with recompute.
#include "tests/bugs/gate_program.h"

#include "experiments/gate/model_gate.h"
#include "experiments/gate/op_gate.h"
#include "mixed/trainer.h"

int main(int argc, char** argv) {
  return gate_program::run(argc, argv, [](uint64_t seed) {
    gate::ModelGateOptions defaults;
    defaults.trainer = "mixed";
    defaults.matmul = "bf16";
    defaults.seed = seed;
    gate::ModelGateOptions flash = defaults;
    flash.variants = {{"attention_forward", "flash"}, {"attention_backward", "flash"}};
    gate::ModelGateOptions recompute = defaults;
    recompute.recompute = "gelu+ln";
    gate::OpGateOptions ops;
    ops.trainer = "mixed";
    ops.seed = seed;
    int64_t failed = gate_program::print_failures(gate::check_ops(ops));
    for (const gate::ModelGateOptions& options : {defaults, flash, recompute})
      failed += gate_program::print_failures(
          gate::check_model([](const gpt2::TrainerOptions& o) { return mixed::make_mixed_trainer(o); }, options));
    return failed;
  });
}
