// The gate for one build of the mixed trainer, patched or not: the whole model with the defaults, with its own attention, and with
// recompute.
#include "tests/bugs/gate_program.h"

#include "experiments/gate/device_hooks.h"
#include "experiments/gate/model_gate.h"
#include "mixed/trainer.h"

int main(int argc, char** argv) {
  return gate_program::run(argc, argv, [](uint64_t seed) {
    gate::ModelGateOptions defaults;
    defaults.trainer = "mixed";
    defaults.matmul = "bf16";
    defaults.seed = seed;
    const gate::DeviceHooks hooks = gate::cuda_device_hooks();
    defaults.device = &hooks;
    gate::ModelGateOptions flash = defaults;
    flash.variants = {{"attention_forward", "flash"}, {"attention_backward", "flash"}};
    gate::ModelGateOptions recompute = defaults;
    recompute.recompute = "gelu+ln";
    int64_t failed = 0;
    for (const gate::ModelGateOptions& options : {defaults, flash, recompute})
      failed += gate_program::print_failures(
          gate::check_model([](const gpt2::TrainerOptions& o) { return mixed::make_mixed_trainer(o); }, options));
    return failed;
  });
}
