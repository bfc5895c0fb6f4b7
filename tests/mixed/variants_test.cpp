// The variants table against the enums that it names, the defaults under --deterministic, and what --variant says when it is wrong.
#include "mixed/variants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "base/errors.h"
#include "mixed/attention_cudnn.h"
#include "mixed/matmul.h"
#include "mixed/product_tiles.h"
#include "mixed/trainer.h"
#include "mixed/variant_rows.h"
#include "tests/mixed/no_communicator.h"

namespace mixed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The member of VariantChoice that a slot's name stands for, as a number.
const std::map<std::string, std::function<int(const VariantChoice&)>> kMembers = {
    {"residual_stream", [](const VariantChoice& c) { return static_cast<int>(c.residual_stream); }},
    {"residual_gradient", [](const VariantChoice& c) { return static_cast<int>(c.residual_gradient); }},
    {"residual", [](const VariantChoice& c) { return static_cast<int>(c.residual); }},
    {"layernorm_forward", [](const VariantChoice& c) { return static_cast<int>(c.layernorm_forward); }},
    {"layernorm_backward", [](const VariantChoice& c) { return static_cast<int>(c.layernorm_backward); }},
    {"linear_forward", [](const VariantChoice& c) { return static_cast<int>(c.linear_forward); }},
    {"bias_gradient", [](const VariantChoice& c) { return static_cast<int>(c.bias_gradient); }},
    {"gelu_forward", [](const VariantChoice& c) { return static_cast<int>(c.gelu_forward); }},
    {"gelu_backward", [](const VariantChoice& c) { return static_cast<int>(c.gelu_backward); }},
    {"attention_forward", [](const VariantChoice& c) { return static_cast<int>(c.attention_forward); }},
    {"attention_backward", [](const VariantChoice& c) { return static_cast<int>(c.attention_backward); }},
    {"lm_head", [](const VariantChoice& c) { return static_cast<int>(c.lm_head); }},
    {"classifier", [](const VariantChoice& c) { return static_cast<int>(c.classifier); }},
    {"zero_grad", [](const VariantChoice& c) { return static_cast<int>(c.zero_grad); }},
    {"adamw", [](const VariantChoice& c) { return static_cast<int>(c.adamw); }},
    {"grad_norm", [](const VariantChoice& c) { return static_cast<int>(c.grad_norm); }},
    {"masters", [](const VariantChoice& c) { return static_cast<int>(c.masters); }},
    {"moments", [](const VariantChoice& c) { return static_cast<int>(c.moments); }},
    {"weight_gradients", [](const VariantChoice& c) { return static_cast<int>(c.weight_gradients); }},
    {"wte_gradient", [](const VariantChoice& c) { return static_cast<int>(c.wte_gradient); }},
    {"graph_edges", [](const VariantChoice& c) { return static_cast<int>(c.graph_edges); }},
    {"communication", [](const VariantChoice& c) { return static_cast<int>(c.communication); }},
    {"embedding_exchange", [](const VariantChoice& c) { return static_cast<int>(c.embedding_exchange); }},
    {"exchange_start", [](const VariantChoice& c) { return static_cast<int>(c.exchange_start); }},
    {"gradient_reduction", [](const VariantChoice& c) { return static_cast<int>(c.gradient_reduction); }},
    {"step_launch", [](const VariantChoice& c) { return static_cast<int>(c.step_launch); }},
    {"attention_plan", [](const VariantChoice& c) { return static_cast<int>(c.attention_plan); }},
    {"matmul_algorithm", [](const VariantChoice& c) { return static_cast<int>(c.matmul_algorithm); }},
};

bool cudnn_here() { return !why_no_cudnn().has_value(); }
bool can_run(const std::string& name) { return cudnn_here() || !(name.starts_with("cudnn") || name == "measured"); }

TEST(MixedVariants, EverySlotOfTheTableChangesItsOwnMemberAndNoOther) {
  ASSERT_EQ(variant_table().size(), kMembers.size()) << "kMembers of this test has a line for every slot";
  const VariantChoice defaults = choose_variants({}, false);
  for (const gpt2::VariantInfo& row : variant_table()) {
    ASSERT_TRUE(kMembers.contains(row.slot)) << row.slot << ": kMembers of this test has a line for every slot";
    for (const std::string& name : row.names) {
      if (!can_run(name)) continue;
      const VariantChoice choice = choose_variants({{row.slot, name}}, false);
      for (const auto& [slot, member] : kMembers)
        EXPECT_EQ(member(choice), slot == row.slot ? variant_index(slot, name) : member(defaults))
            << row.slot << "=" << name << " seen in " << slot;
    }
  }
}

TEST(MixedVariants, TheFirstNameOfASlotIsItsDefault) {
  const VariantChoice defaults = choose_variants({}, false);
  for (const gpt2::VariantInfo& row : variant_table())
    EXPECT_EQ(kMembers.at(row.slot)(defaults), variant_index(row.slot, row.names.front())) << row.slot;
}

TEST(MixedVariants, NamesMeanTheEnumeratorsOfTheSameName) {
  const auto index = [](const char* slot, const char* name) { return variant_index(slot, name); };
  EXPECT_EQ(index("residual", "matmul_epilogue"), static_cast<int>(Residual::matmul_epilogue));
  EXPECT_EQ(index("bias_gradient", "column_sums"), static_cast<int>(BiasGradient::column_sums));
  EXPECT_EQ(index("gelu_forward", "kernel"), static_cast<int>(Gelu::kernel));
  EXPECT_EQ(index("gelu_backward", "hopper"), static_cast<int>(Gelu::hopper));
  EXPECT_EQ(index("lm_head", "hopper"), static_cast<int>(LmHead::hopper));
  EXPECT_EQ(index("attention_forward", "hopper"), static_cast<int>(AttentionForward::hopper));
  EXPECT_EQ(index("attention_backward", "hopper"), static_cast<int>(AttentionBackward::hopper));
  EXPECT_EQ(index("attention_forward", "flash"), static_cast<int>(AttentionForward::flash));
  EXPECT_EQ(index("attention_forward", "unfused"), static_cast<int>(AttentionForward::unfused));
  EXPECT_EQ(index("attention_backward", "flash"), static_cast<int>(AttentionBackward::flash));
  EXPECT_EQ(index("attention_backward", "unfused"), static_cast<int>(AttentionBackward::unfused));
  EXPECT_EQ(index("classifier", "two_pass"), static_cast<int>(Classifier::two_pass));
  EXPECT_EQ(index("step_launch", "stream"), static_cast<int>(StepLaunch::stream));
  EXPECT_EQ(index("matmul_algorithm", "search"), static_cast<int>(MatmulAlgorithm::search));
  EXPECT_EQ(index("matmul_algorithm", "fastest"), static_cast<int>(MatmulAlgorithm::fastest));
  EXPECT_EQ(index("matmul_algorithm", "fewest_joules"), static_cast<int>(MatmulAlgorithm::fewest_joules));
  EXPECT_EQ(index("matmul_algorithm", "heuristic"), static_cast<int>(MatmulAlgorithm::heuristic));
  EXPECT_EQ(index("residual_stream", "fp32"), static_cast<int>(ResidualStream::as_fp32));
  EXPECT_EQ(index("residual_gradient", "bf16"), static_cast<int>(ResidualGradient::as_bf16));
  EXPECT_EQ(index("moments", "fp32"), static_cast<int>(Moments::as_fp32));
  EXPECT_EQ(index("moments", "split"), static_cast<int>(Moments::split));
  EXPECT_EQ(index("moments", "16_bits"), static_cast<int>(Moments::as_16_bits));
  EXPECT_EQ(index("residual_stream", "split"), static_cast<int>(ResidualStream::split));
  EXPECT_EQ(index("residual_gradient", "split"), static_cast<int>(ResidualGradient::split));
}

// docs/study/mixed-defaults.md has the figures.
TEST(MixedVariants, TheDefaultsAreWhatTheScreeningFoundFaster) {
  const VariantChoice choice = choose_variants({}, false);
  EXPECT_EQ(choice.masters, Masters::split);
  EXPECT_EQ(choice.graph_edges, GraphEdges::programmatic);
  EXPECT_EQ(choice.matmul_algorithm, MatmulAlgorithm::fitting_tiles);
  EXPECT_EQ(choice.attention_forward, AttentionForward::hopper);
  EXPECT_EQ(choice.attention_backward, AttentionBackward::hopper);
  EXPECT_EQ(choice.attention_plan, cudnn_here() ? AttentionPlan::measured : AttentionPlan::heuristic);
}

// Neither split masters nor edges change a bit, and what is drawn for moments is a function of step and element; a measured plan may.
TEST(MixedVariants, DeterministicDefaultsRepeat) {
  const VariantChoice choice = choose_variants({}, true);
  EXPECT_EQ(choice.attention_backward, AttentionBackward::hopper);
  EXPECT_EQ(choice.matmul_algorithm, MatmulAlgorithm::heuristic);
  EXPECT_EQ(choice.attention_plan, AttentionPlan::heuristic);
  EXPECT_EQ(choice.masters, Masters::split);
  EXPECT_EQ(choice.moments, Moments::split);
  EXPECT_EQ(choice.graph_edges, GraphEdges::programmatic);
}

TEST(MixedVariants, DeterministicRefusesWhatDoesNotRepeat) {
  for (const char* measured : {"fitting_tiles", "search", "fewest_joules", "fastest"}) {
    EXPECT_THROW(choose_variants({{"matmul_algorithm", measured}}, true), stepscope::InputError) << measured;
    EXPECT_NO_THROW(choose_variants({{"matmul_algorithm", measured}}, false)) << measured;
  }
  EXPECT_NO_THROW(choose_variants({{"attention_backward", "flash"}}, true));
  if (cudnn_here()) {
    EXPECT_THROW(choose_variants({{"attention_backward", "cudnn"}}, true), stepscope::InputError);
  }
}

TEST(MixedVariants, WithoutCudnnNamingItSaysWhatIsMissing) {
  if (cudnn_here()) GTEST_SKIP() << "cuDNN is here";
  try {
    choose_variants({{"attention_forward", "cudnn"}}, false);
    FAIL() << "cudnn was taken";
  } catch (const stepscope::MachineError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("attention_forward=cudnn"), HasSubstr(*why_no_cudnn())));
  }
}

std::string refusal(const std::map<std::string, std::string>& wanted) {
  try {
    choose_variants(wanted, false);
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(MixedVariants, AnUnknownSlotOrVariantIsNamedBesideTheKnownOnes) {
  EXPECT_THAT(refusal({{"attention", "flash"}}), AllOf(HasSubstr("attention=flash"), HasSubstr("attention_backward")));
  EXPECT_THAT(refusal({{"adamw", "fastest"}}), AllOf(HasSubstr("adamw=fastest"), HasSubstr("all_tensors, per_tensor")));
}

Run run_of_ranks(gpt2::distributed::Communicator* communicator) {
  gpt2::TrainerOptions o;
  o.model = gpt2::model_from_name("d12");
  o.batch_size = 4;
  o.seq_len = 1024;
  o.communicator = communicator;
  return {o, 227 << 10, [](const Gemm&) { return std::nullopt; }, [](bool) { return std::nullopt; }, 9};
}

std::string refusal_of_ranks(const std::map<std::string, std::string>& wanted, gpt2::distributed::Communicator* communicator) {
  try {
    (void)variants().settle(run_of_ranks(communicator), wanted, false);
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(MixedVariants, SeveralRanksRefuseWhatTheirUpdateDoesNotDo) {
  NoCommunicator two;
  for (const auto& [slot, name] : {std::pair{"grad_norm", "beside_backward"}, std::pair{"adamw", "per_tensor"}}) {
    EXPECT_THAT(refusal_of_ranks({{slot, name}}, &two), AllOf(HasSubstr(name), HasSubstr("ranks"))) << slot;
    EXPECT_EQ(refusal_of_ranks({{slot, name}}, nullptr), "") << slot;
  }
  EXPECT_THAT(refusal_of_ranks({{"embedding_exchange", "gathered_rows"}, {"communication", "all_reduce"}}, &two),
              HasSubstr("before the end of the backward pass"));
}

// fitting_tiles and search run there too, and say afterwards that time chose alone.
TEST(MixedVariants, OnlyProductsByJoulesAloneNeedAnEnergyCounter) {
  mixed::Run run = run_of_ranks(nullptr);
  int asked = 0;
  run.why_no_energy_counter = [&]() -> std::optional<std::string> { return ++asked, "it is a slice"; };
  const auto refused = [&](const std::string& rule) -> std::string {
    try {
      (void)variants().settle(run, {{"matmul_algorithm", rule}}, false);
    } catch (const stepscope::InputError& e) {
      return e.what();
    }
    return "";
  };
  for (const char* rule : {"search", "fastest", "heuristic"}) EXPECT_EQ(refused(rule), "");
  if (!why_no_tiles(9)) {
    EXPECT_EQ(refused("fitting_tiles"), "");
  }
  const auto standard = variants().settle(run, {}, false);
  EXPECT_EQ(standard.choice.matmul_algorithm, why_no_tiles(9) ? MatmulAlgorithm::search : MatmulAlgorithm::fitting_tiles);
  EXPECT_EQ(asked, 0);
  EXPECT_THAT(refused("fewest_joules"), AllOf(HasSubstr("matmul_algorithm=fewest_joules"), HasSubstr("it is a slice")));
  run.why_no_energy_counter = [] { return std::nullopt; };
  EXPECT_EQ(refused("fewest_joules"), "");
}

TEST(MixedVariants, OtherGpusThanHoppersChooseAmongTheOffers) {
  mixed::Run run = run_of_ranks(nullptr);
  for (const int major : {8, 10}) {
    run.compute_capability_major = major;
    EXPECT_EQ(variants().settle(run, {}, false).choice.matmul_algorithm, MatmulAlgorithm::search) << major;
  }
}

TEST(MixedVariants, ALibraryWithOtherKernelsChoosesAmongItsOffers) {
  mixed::Run run = run_of_ranks(nullptr);
  int64_t multiply_adds = 0;
  run.why_no_named_tiles = [&](const Gemm& g) -> std::optional<std::string> {
    multiply_adds = g.m * g.n * g.k;
    return "they are of family 77";
  };
  const auto settled = variants().settle(run, {}, false);
  EXPECT_EQ(settled.choice.matmul_algorithm, MatmulAlgorithm::search);
  if (why_no_tiles(9)) GTEST_SKIP() << "no library is asked: " << *why_no_tiles(9);
  EXPECT_THAT(settled.notices, testing::Contains(AllOf(HasSubstr("matmul_algorithm=search runs"), HasSubstr("they are of family 77"))));
  EXPECT_EQ(multiply_adds, run.options.batch_size * run.options.seq_len * 3 * run.options.model.channels * run.options.model.channels);
}

TEST(MixedVariants, KernelsThatWereCompiledForOlderGpusKeepTheirEdges) {
  mixed::Run run = run_of_ranks(nullptr);
  EXPECT_EQ(variants().settle(run, {}, false).choice.graph_edges, GraphEdges::programmatic);
  run.kernels_wait = false;
  const auto settled = variants().settle(run, {}, false);
  EXPECT_EQ(settled.choice.graph_edges, GraphEdges::full);
  EXPECT_THAT(settled.notices,
              testing::Contains(AllOf(HasSubstr("graph_edges=full runs"), HasSubstr("compiled for devices before sm_90"))));
}

TEST(MixedVariants, SeveralRanksGatherRowsWhereTheseAreFewerBytesThanWte) {
  NoCommunicator two;
  mixed::Run run = run_of_ranks(&two);
  const int64_t Vp = run.options.model.padded_vocab;
  run.options.seq_len = 1;
  for (const auto& [batch, is] : {std::pair{Vp, EmbeddingExchange::gathered_bf16_rows}, std::pair{Vp + 1, EmbeddingExchange::dense}}) {
    run.options.batch_size = batch;
    const auto s = variants().settle(run, {}, true);
    EXPECT_EQ(s.choice.embedding_exchange, is) << batch;
    EXPECT_EQ(s.choice.communication, Communication::zero1_ahead);
    EXPECT_EQ(s.choice.residual_gradient, ResidualGradient::split);
    const auto said = testing::Contains(AllOf(HasSubstr("embedding_exchange=dense runs"), HasSubstr("more bytes")));
    if (is == EmbeddingExchange::dense)
      EXPECT_THAT(s.notices, said);
    else
      EXPECT_THAT(s.notices, testing::Not(said));
    for (const auto& [name, asked] : {std::pair{"gathered_rows", EmbeddingExchange::gathered_rows},
                                      std::pair{"gathered_bf16_rows", EmbeddingExchange::gathered_bf16_rows}})
      EXPECT_EQ(variants().settle(run, {{"embedding_exchange", name}}, true).choice.embedding_exchange, asked);
    const auto at_the_end = variants().settle(run, {{"communication", "all_reduce"}}, true).choice;
    EXPECT_EQ(at_the_end.embedding_exchange, EmbeddingExchange::dense);
  }
}

TEST(MixedVariants, SeveralRanksStoreMastersMomentsAndGradientsAsOneDoes) {
  NoCommunicator two;
  for (auto* communicator : {static_cast<NoCommunicator*>(nullptr), &two}) {
    mixed::Run run = run_of_ranks(communicator);
    const auto s = variants().settle(run, {}, true);
    EXPECT_EQ(s.choice.masters, Masters::split);
    EXPECT_EQ(s.choice.moments, Moments::split);
    EXPECT_EQ(s.choice.residual_gradient, ResidualGradient::split);
    EXPECT_EQ(s.choice.weight_gradients, WeightGradients::as_bf16);
    run.options.micro_batches = 2;
    EXPECT_EQ(variants().settle(run, {}, true).choice.weight_gradients, WeightGradients::as_fp32);
  }
}

// All are refused before a device is looked for: this test needs none.
TEST(MixedVariants, TheTrainerRefusesUnknownOptionsWithoutADevice) {
  gpt2::TrainerOptions good;
  good.matmul = "bf16";
  const auto refused = [&](auto change) {
    gpt2::TrainerOptions o = good;
    change(o);
    EXPECT_THROW(make_mixed_trainer(o), stepscope::InputError);
  };
  refused([](gpt2::TrainerOptions& o) { o.variants = {{"adamw", "fastest"}}; });
  refused([](gpt2::TrainerOptions& o) { o.matmul = "tf32"; });
  refused([](gpt2::TrainerOptions& o) { o.weight_rounding = "up"; });
  refused([](gpt2::TrainerOptions& o) { o.recompute = "all"; });
  refused([](gpt2::TrainerOptions& o) { o.variants = {{"weight_gradients", "bf16"}}, o.micro_batches = 2; });
}

}  // namespace
}  // namespace mixed
