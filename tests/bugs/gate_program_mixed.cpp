// The gate for one build of the mixed trainer, patched or not: every op, then the whole model with the defaults, with its own attention,
// a head with logits and a residual stream and all gradients in fp32, with every kernel of its own that the defaults leave to a library or
// to a fused one, with recompute, with stochastic rounding, with masters in fp32, the norm beside the backward and every column of dqkv
// summed, and with a residual stream in bf16; then many rows, with the defaults and with a head with logits.
#include "tests/bugs/gate_program.h"

#include "experiments/gate/device_hooks.h"
#include "experiments/gate/model_gate.h"
#include "experiments/gate/op_gate.h"
#include "mixed/trainer.h"

int main(int argc, char** argv) {
  return gate_program::run(argc, argv, [](uint64_t seed, const gate_program::Words& words) {
    gate::ModelGateOptions defaults;
    defaults.trainer = "mixed";
    defaults.matmul = "bf16";
    defaults.seed = seed;
    defaults.answers = words.answers;
    defaults.on_hang = gate_program::say_and_end();
    const gate::DeviceHooks hooks = gate::cuda_device_hooks();
    defaults.device = &hooks;
    gate::ModelGateOptions others = defaults;
    others.with_timed_steps = false;  // once is enough: kernels are not what they are about
    gate::ModelGateOptions flash = others;
    flash.variants = {{"attention_forward", "flash"}, {"attention_backward", "flash"}, {"lm_head", "logits"},
                      {"residual_stream", "fp32"},    {"residual_gradient", "fp32"},   {"weight_gradients", "fp32"}};
    gate::ModelGateOptions plain = others;
    plain.variants = {{"attention_forward", "unfused"},
                      {"attention_backward", "unfused"},
                      {"linear_forward", "bias_kernel"},
                      {"bias_gradient", "column_sums"},
                      {"gelu_forward", "kernel"},
                      {"gelu_backward", "kernel"},
                      {"lm_head", "logits"},
                      {"classifier", "two_pass"},
                      {"residual", "separate"},
                      {"layernorm_forward", "block_per_row"},
                      {"layernorm_backward", "separate_columns"},
                      {"adamw", "per_tensor"},
                      {"step_launch", "stream"}};
    gate::ModelGateOptions recompute = others;
    recompute.recompute = "gelu+ln";
    gate::ModelGateOptions stochastic = others;
    stochastic.weight_rounding = "stochastic";
    gate::ModelGateOptions beside = others;
    beside.variants = {{"masters", "fp32"}, {"grad_norm", "beside_backward"}, {"bias_gradient", "attention_fold"}};
    gate::ModelGateOptions narrow = others;
    narrow.variants = {{"residual_stream", "bf16"}, {"residual_gradient", "bf16"}};
    gate::OpGateOptions ops;
    ops.trainer = "mixed";
    ops.seed = seed;
    std::vector<std::function<int64_t()>> models;
    for (const gate::ModelGateOptions& options : {defaults, flash, plain, recompute, stochastic, beside, narrow})
      models.push_back([options] {
        return gate_program::print_failures(
            gate::check_model([](const gpt2::TrainerOptions& o) { return mixed::make_mixed_trainer(o); }, options));
      });
    gate::ModelGateOptions logits = others;
    logits.variants = {{"lm_head", "logits"}};
    for (const gate::ModelGateOptions& options : {others, logits})
      models.push_back([options] {
        return gate_program::check_many_rows([](const gpt2::TrainerOptions& o) { return mixed::make_mixed_trainer(o); }, options);
      });
    return gate_program::check_all(
        words, [&](const gate_program::Ops& only) { return gate_program::check_ops(ops, words, only); }, models);
  });
}
