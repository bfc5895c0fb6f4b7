// The gate for one build of the fp32 trainer, patched or not: every op, then the whole model, then many rows, in fp32 and in TF32.
#include "tests/bugs/gate_program.h"

#include "experiments/gate/device_hooks.h"
#include "experiments/gate/model_gate.h"
#include "experiments/gate/op_gate.h"
#include "fp32/trainer.h"

int main(int argc, char** argv) {
  return gate_program::run(argc, argv, [](uint64_t seed, const gate_program::Words& words) {
    const gate::DeviceHooks hooks = gate::cuda_device_hooks();  // before anything that a patch may change
    gate::OpGateOptions ops;
    ops.seed = seed;
    gate::ModelGateOptions model;
    model.seed = seed;
    model.on_hang = gate_program::say_and_end();
    model.device = &hooks;
    model.answers = words.answers;
    const gate::TrainerFactory make = [](const gpt2::TrainerOptions& o) { return fp32::make_fp32_trainer(o); };
    gate::ModelGateOptions tf32 = model;
    tf32.matmul = "tf32";
    tf32.with_timed_steps = tf32.with_loop = false;  // once is enough
    return gate_program::check_all(
        words, [&](const gate_program::Ops& only) { return gate_program::check_ops(ops, words, only); },
        {[&] { return gate_program::print_failures(gate::check_model(make, model)); },
         [&] { return gate_program::print_failures(gate::check_model(make, tf32)); },
         [&] { return gate_program::check_many_rows(make, model); }, [&] { return gate_program::check_many_rows(make, tf32); }});
  });
}
