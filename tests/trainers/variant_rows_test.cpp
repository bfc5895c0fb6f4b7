// The tables of both trainers without a device: rows name kernels and ranges that exist, a fallback would be seen, and every shipped
// model has variants that run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "fp32/matmul.h"
#include "fp32/trainer.h"
#include "fp32/variant_rows.h"
#include "gpt2/ops.h"
#include "mixed/attention_cudnn.h"
#include "mixed/matmul.h"
#include "mixed/trainer.h"
#include "mixed/variant_rows.h"
#include "tests/trainers/variant_launches.h"

namespace trainers {
namespace {

using gpt2::VariantFacts;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::map<std::string, std::vector<VariantFacts>>& tables() {
  static const std::map<std::string, std::vector<VariantFacts>> all{{"fp32", fp32::fp32_variant_facts()},
                                                                    {"mixed", mixed::mixed_variant_facts()}};
  return all;
}

const VariantFacts& row(const std::string& trainer, const std::string& slot, const std::string& name) {
  for (const VariantFacts& v : tables().at(trainer))
    if (v.slot == slot && v.name == name) return v;
  throw std::out_of_range(slot + "=" + name);
}

enum class Color { red, green };
enum class Size { small, large };
struct Choice {
  Color color{};
  Size size{};
};
struct Anywhere {
  gpt2::TrainerOptions options{};
  static std::string describe() { return "any shape"; }
};
using Row = gpt2::VariantRow<Choice, Anywhere>;
constexpr Row kRed{.slot = "color", .name = "red", .is = gpt2::variant_value<&Choice::color, Color::red>(), .help = ""};
constexpr Row kGreen{.slot = "color", .name = "green", .is = gpt2::variant_value<&Choice::color, Color::green>(), .help = ""};
constexpr Row kSmall{.slot = "size", .name = "small", .is = gpt2::variant_value<&Choice::size, Size::small>(), .help = ""};
constexpr Row kLarge{.slot = "size", .name = "large", .is = gpt2::variant_value<&Choice::size, Size::large>(), .help = ""};
static_assert(gpt2::rows_are_the_enumerators(std::array{kRed, kGreen, kSmall, kLarge}));
static_assert(gpt2::rows_are_the_enumerators(std::array{kGreen, kRed, kLarge, kSmall}));
static_assert(!gpt2::rows_are_the_enumerators(std::array{kRed, kSmall, kLarge}));
static_assert(!gpt2::rows_are_the_enumerators(std::array{kRed, kRed, kSmall, kLarge}));
static_assert(!gpt2::rows_are_the_enumerators(std::array{kRed, kSmall, kGreen, kLarge}));

// Two trainers share an enum and prefer different variants.
TEST(VariantRows, TheFirstRowOfASlotIsItsDefaultWhateverTheOrderOfTheEnum) {
  static constexpr std::array kRows{kGreen, kRed, kSmall, kLarge};
  const gpt2::VariantTable<Choice, Anywhere> table("toy", kRows);
  EXPECT_EQ(table.choose({}, false).color, Color::green);
  const auto standard = table.settle(Anywhere{}, {}, false);
  EXPECT_EQ(standard.choice.color, Color::green);
  EXPECT_THAT(standard.variants, IsEmpty());
  const auto asked = table.settle(Anywhere{}, {{"color", "red"}}, false);
  EXPECT_EQ(asked.choice.color, Color::red);
  EXPECT_EQ(asked.variants, (std::map<std::string, std::string>{{"color", "red"}}));
}

TEST(VariantRows, EveryRowNamesItsLaunchesOrSaysWhyTheyCannotBeSeen) {
  for (const auto& [trainer, table] : tables())
    for (const VariantFacts& v : table) EXPECT_NE(v.launches.empty(), v.unseen.empty()) << trainer << " " << v.slot << "=" << v.name;
}

// The gate leaves these out, whatever else their rows say, and no others.
TEST(VariantRows, WhatNeedsRanksAreTheSlotsOfWhatRanksDoAmongThemselves) {
  const std::set<std::string> slots{"communication", "embedding_exchange", "exchange_start", "gradient_reduction"};
  for (const auto& [trainer, table] : tables())
    for (const VariantFacts& v : table) EXPECT_EQ(v.needs_ranks, slots.contains(v.slot)) << trainer << " " << v.slot << "=" << v.name;
}

// A misspelt kernel in `never` would forbid nothing.
TEST(VariantRows, TheKernelsThatTheyNameAreInTheTrainersSources) {
  for (const auto& [trainer, table] : tables()) {
    std::string sources;
    for (const std::string& folder : {trainer + "/kernels", std::string("gpt2/ops"), std::string("mixed/hopper")})
      for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(SOURCE_DIR) / folder)) {
        std::ifstream in(file.path());
        sources.append(std::istreambuf_iterator<char>(in), {});
      }
    const std::regex kernel("[a-z0-9_]+_kernel");
    for (const VariantFacts& v : table)
      for (const gpt2::VariantLaunches& l : v.launches)
        for (const std::string& text : {std::string(l.must), std::string(l.never)})
          for (std::sregex_iterator i(text.begin(), text.end(), kernel), end; i != end; ++i)
            EXPECT_THAT(sources, HasSubstr(" " + i->str() + "(")) << trainer << " " << v.slot << "=" << v.name;
  }
}

TEST(VariantRows, TheRangesThatTheyNameAreRangesOfAStep) {
  for (const auto& [trainer, table] : tables())
    for (const VariantFacts& v : table)
      for (const gpt2::VariantLaunches& l : v.launches)
        for (const std::string& where : split(l.where, ' ')) {
          const size_t slash = where.find('/');
          ASSERT_NE(slash, std::string::npos) << where;
          EXPECT_TRUE(gpt2::pass_from_name(where.substr(0, slash))) << where;
          EXPECT_TRUE(gpt2::op_from_name(where.substr(slash + 1))) << where;
        }
}

json launch(const char* path, const char* name) { return {{"path", path}, {"name", name}, {"activity", "kernel"}}; }

TEST(VariantRows, AFallbackAtOnePlaceIsSeen) {
  const char* warp = "void mixed::warp_per_row_forward_kernel<8, 1, true, float>(float*)";
  const char* block = "void mixed::block_per_row_forward_kernel<8, true, float>(float*)";
  const VariantFacts v = row("mixed", "layernorm_forward", "warp_per_row");
  const json good{launch("step/forward/0/ln1", warp), launch("step/forward/0/ln2", warp), launch("step/forward/-/lnf", warp)};
  EXPECT_THAT(differences(v, good), IsEmpty());
  const json fallback{launch("step/forward/0/ln1", warp), launch("step/forward/0/ln2", block), launch("step/forward/-/lnf", warp)};
  EXPECT_THAT(differences(v, fallback), Contains(HasSubstr("step/forward/0/ln2 launched void mixed::block_per_row")));
  EXPECT_THAT(differences(v, fallback), Contains(HasSubstr("launched no warp_per_row_forward_kernel")));
  const json missing{launch("step/forward/0/ln1", warp), launch("step/forward/0/ln2", warp)};
  EXPECT_THAT(differences(v, missing), ElementsAre("forward/lnf has no launch"));
}

TEST(VariantRows, APlaceThatAFusionLeavesEmptyMustBeEmpty) {
  const VariantFacts v = row("mixed", "gelu_forward", "matmul_epilogue");
  const json parts{launch("step/forward/0/mlp_up", "gemm"), launch("step/forward/0/gelu", "gelu_forward_kernel<8>")};
  EXPECT_THAT(differences(v, parts), Contains(HasSubstr("step/forward/0/gelu has 1 launches")));
}

TEST(VariantRows, AGraphIsToldFromSingleLaunches) {
  json in_graph = launch("step/forward/0/ln1", "k");
  in_graph["graph_node"] = 3;
  const json both{in_graph, launch("step/forward/0/ln2", "k")};
  EXPECT_THAT(differences(row("mixed", "step_launch", "graph"), both), ElementsAre("1 of 2 kernels are nodes of a graph"));
  EXPECT_THAT(differences(row("mixed", "step_launch", "stream"), both), ElementsAre("1 of 2 kernels are nodes of a graph"));
  EXPECT_THAT(differences(row("mixed", "step_launch", "graph"), json::array({in_graph})), IsEmpty());
}

// ---- settling at a shape ---------------------------------------------------------------------------------------------------

constexpr int64_t kSharedOfH200 = 232448;
const std::optional<std::string> kYes;

gpt2::TrainerOptions of_model(const gpt2::ModelConfig& model) {
  gpt2::TrainerOptions o;
  o.model = model;
  return o;
}
mixed::Run mixed_run(const gpt2::ModelConfig& model) {
  return {of_model(model), kSharedOfH200, [](const mixed::Gemm&) { return kYes; }, [](bool) { return kYes; }};
}
fp32::Run fp32_run(const gpt2::ModelConfig& model) {
  return {of_model(model), kSharedOfH200, [](const fp32::Gemm&) { return kYes; }};
}
gpt2::ModelConfig small(int64_t C, int64_t heads, int64_t Vp) {
  return {.max_seq_len = 64, .vocab_size = Vp, .padded_vocab = Vp, .layers = 2, .heads = heads, .channels = C};
}
// Only this one slot.
std::string settled(const mixed::VariantTable::Settled& s, const std::string& slot) {
  const auto found = s.variants.find(slot);
  return found == s.variants.end() ? "" : found->second;
}
template <class Settle>
std::string refusal(const Settle& settle) {
  try {
    settle();
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

// Of what the mixed trainer is asked for.
std::string refusal_of(const mixed::Run& run, const std::map<std::string, std::string>& wanted) {
  return refusal([&] { mixed::variants().settle(run, wanted, false); });
}

TEST(VariantRows, EveryShippedModelHasVariantsThatRunAndSaysWhichAreNotTheDefault) {
  for (const std::string& name : gpt2::model_names()) {
    SCOPED_TRACE(name);
    const gpt2::ModelConfig model = gpt2::model_from_name(name);
    const auto m = mixed::variants().settle(mixed_run(model), {}, false);
    EXPECT_EQ(settled(m, "layernorm_forward"), model.channels > 2048 ? "block_per_row" : "");
    EXPECT_EQ(settled(m, "layernorm_backward"), model.channels > 8192 ? "separate_columns" : "");
    EXPECT_EQ(settled(m, "bias_gradient"), model.channels > 8192 ? "column_sums" : model.head_size() == 64 ? "" : "layernorm_fold");
    EXPECT_EQ(settled(m, "classifier"), "");
    if (!mixed::why_no_cudnn()) {
      EXPECT_EQ(m.notices.size(), m.variants.size());
    }
    const auto f = fp32::variants().settle(fp32_run(model), {}, false);
    EXPECT_EQ(f.variants.size(), model.channels > 8192 ? 1u : 0u);
    EXPECT_EQ(f.notices.size(), f.variants.size());
  }
}

TEST(VariantRows, ANoticeNamesWhatRunsWhatDoesNotAndWhy) {
  const auto s = mixed::variants().settle(mixed_run(gpt2::model_from_name("gpt3:c2560")), {}, false);
  EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("layernorm_forward=block_per_row"), HasSubstr("warp_per_row"), HasSubstr("2560"))));
  EXPECT_EQ(s.choice.layernorm_forward, mixed::LayernormForward::block_per_row);
}

TEST(VariantRows, AVariantThatWasAskedForIsRefusedWithTheShapeAndTheReason) {
  const auto ask = [](const gpt2::ModelConfig& model, const char* slot, const char* name) {
    return refusal_of(mixed_run(model), {{slot, name}});
  };
  EXPECT_THAT(ask(gpt2::model_from_name("gpt3:c2560"), "layernorm_forward", "warp_per_row"),
              AllOf(HasSubstr("layernorm_forward=warp_per_row"), HasSubstr("C=2560"), HasSubstr("up to 2048")));
  EXPECT_THAT(ask(small(64, 4, 509), "classifier", "one_read"), AllOf(HasSubstr("classifier=one_read"), HasSubstr("509")));
  EXPECT_THAT(ask(small(64, 4, 1 << 17), "classifier", "one_read"), AllOf(HasSubstr("262272 bytes"), HasSubstr("232448")));
  EXPECT_THAT(ask(small(512, 2, 512), "attention_forward", "flash"), HasSubstr("256"));
  EXPECT_THAT(ask(small(33 * 8 + 1, 1, 512), "layernorm_forward", "warp_per_row"), HasSubstr("up to 256"));
  EXPECT_EQ(ask(small(2048, 16, 512), "layernorm_forward", "warp_per_row"), "");
}

TEST(VariantRows, TheFp32TrainerRefusesInTheSameWay) {
  const auto ask = [](const gpt2::ModelConfig& model, const char* slot, const char* name) {
    return refusal([&] { fp32::variants().settle(fp32_run(model), {{slot, name}}, false); });
  };
  EXPECT_THAT(ask(small(64, 4, 1 << 16), "classifier", "one_read"), AllOf(HasSubstr("classifier=one_read"), HasSubstr("262272 bytes")));
  EXPECT_THAT(ask(small(512, 2, 512), "attention_backward", "flash"), HasSubstr("256"));
  EXPECT_EQ(ask(small(512, 4, 512), "attention_backward", "flash"), "");
  EXPECT_THAT(ask(small(12288, 96, 512), "layernorm_backward", "fused_rows"), HasSubstr("8192"));
  EXPECT_EQ(ask(small(64, 4, 50304), "classifier", "one_read"), "");
}

// In fp32 arithmetic flash holds heads of up to 128 channels, on TF32 tensor cores of up to 64.
TEST(VariantRows, FlashAttentionGivesWayWhereItsRateCannotHoldTheHeads) {
  fp32::Run run = fp32_run(small(512, 4, 512));
  EXPECT_EQ(fp32::variants().settle(run, {}, false).notices, std::vector<std::string>{});
  run.options.matmul = "tf32";
  const auto s = fp32::variants().settle(run, {}, false);
  EXPECT_EQ(s.choice.attention_forward, fp32::AttentionForward::unfused_causal_blocks);
  EXPECT_EQ(s.choice.attention_backward, fp32::AttentionBackward::unfused_causal_blocks);
  EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("attention_forward=unfused_causal_blocks runs, not the default flash"),
                                        HasSubstr("up to 64 channels on TF32"), HasSubstr("the model has 128"))));
  EXPECT_THAT(refusal([&] { fp32::variants().settle(run, {{"attention_forward", "flash"}}, false); }), HasSubstr("up to 64"));
  run.options.model = small(512, 8, 512);
  EXPECT_EQ(fp32::variants().settle(run, {}, false).notices, std::vector<std::string>{});
}

// Consumer GPUs have 99 KiB a block where the tiles take 153.
TEST(VariantRows, FlashAttentionGivesWayWhereSharedMemoryCannotHoldItsTiles) {
  fp32::Run run = fp32_run(small(512, 4, 512));
  run.shared_bytes_per_block = 99 << 10;
  const auto s = fp32::variants().settle(run, {}, false);
  EXPECT_EQ(s.choice.attention_forward, fp32::AttentionForward::unfused_causal_blocks);
  EXPECT_EQ(s.choice.attention_backward, fp32::AttentionBackward::unfused_causal_blocks);
  EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("attention_forward=unfused_causal_blocks runs, not the default flash"),
                                        HasSubstr("heads of 128 channels take 153 KiB"), HasSubstr("of this GPU has 99"))));
  run.shared_bytes_per_block = 153 << 10;
  EXPECT_EQ(fp32::variants().settle(run, {}, false).notices, std::vector<std::string>{});
  run.shared_bytes_per_block = 99 << 10;
  run.options.model = small(512, 8, 512);
  EXPECT_EQ(fp32::variants().settle(run, {}, false).notices, std::vector<std::string>{});
}

// run.json named an exchange that a step of one GPU does not have, and mixed's embedding_exchange gave way because of it.
TEST(VariantRows, VariantsOfSeveralRanksAreLeftOutOfATrainerThatTrainsAlone) {
  const std::map<std::string, std::string> wanted{{"communication", "all_reduce"}, {"gradient_reduction", "bf16"}};
  const auto expect_left_out = [&](const auto& with, const auto& without) {
    EXPECT_EQ(with.choice.communication, without.choice.communication);
    EXPECT_EQ(with.variants, without.variants);
    EXPECT_THAT(with.notices, Contains("--variant communication=all_reduce is left out: one GPU exchanges nothing"));
    EXPECT_THAT(with.notices, Contains("--variant gradient_reduction=bf16 is left out: one GPU exchanges nothing"));
    EXPECT_EQ(with.notices.size(), without.notices.size() + 2);
  };
  const mixed::Run m = mixed_run(small(64, 4, 512));
  expect_left_out(mixed::variants().settle(m, wanted, false), mixed::variants().settle(m, {}, false));
  const fp32::Run f = fp32_run(small(64, 4, 512));
  expect_left_out(fp32::variants().settle(f, wanted, false), fp32::variants().settle(f, {}, false));
}

// What cuBLASLt has no kernel for, it says when the variants are settled; a default gives way, a variant that was asked for is refused.
TEST(VariantRows, AProductThatTheLibraryLacksIsNoSilentFallback) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  run.compute_capability_major = 8;  // without our own products
  run.why_no_product = [](const mixed::Gemm& g) -> std::optional<std::string> {
    if (g.epilogue != mixed::Epilogue::none) return "cuBLASLt has no kernel for it";
    return std::nullopt;
  };
  const auto s = mixed::variants().settle(run, {}, false);
  EXPECT_EQ(settled(s, "gelu_forward"), "kernel");
  EXPECT_EQ(settled(s, "gelu_backward"), "kernel");
  EXPECT_EQ(settled(s, "linear_forward"), "bias_kernel");
  EXPECT_EQ(settled(s, "bias_gradient"), "layernorm_fold");
  for (const auto& [slot, name] : std::map<std::string, std::string>{{"residual", "matmul_epilogue"},
                                                                     {"gelu_forward", "matmul_epilogue"},
                                                                     {"linear_forward", "bias_epilogue"},
                                                                     {"bias_gradient", "matmul_epilogue"}})
    EXPECT_THAT(refusal([&, &in = slot, &row = name] {
                  mixed::variants().settle(run, {{in, row}, {"residual_stream", "fp32"}}, false);
                }),
                AllOf(HasSubstr(slot + "=" + name), HasSubstr("cuBLASLt has no kernel for it"), HasSubstr("C=64")));
}

// The epilogue of the residual sum is asked for with the storage that the stream has.
TEST(VariantRows, TheResidualProductIsAskedForInTheStreamsStorage) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  run.why_no_product = [](const mixed::Gemm& g) -> std::optional<std::string> {
    if (g.epilogue == mixed::Epilogue::bias && g.c_storage == mixed::Storage::fp32) return "no fp32 output";
    return std::nullopt;
  };
  const auto with = [&](const char* stream) { return refusal_of(run, {{"residual", "matmul_epilogue"}, {"residual_stream", stream}}); };
  EXPECT_THAT(with("fp32"), HasSubstr("no fp32 output"));
  EXPECT_THAT(with("split"), HasSubstr("split residual stream"));
  EXPECT_EQ(with("bf16"), "");
}

// layernorm_backward=separate_columns sums no columns on its way, so nothing is folded into it.
TEST(VariantRows, AFoldNeedsTheKernelThatItIsFoldedInto) {
  const mixed::Run run = mixed_run(small(64, 4, 512));
  const auto s = mixed::variants().settle(run, {{"layernorm_backward", "separate_columns"}}, false);
  EXPECT_EQ(s.choice.bias_gradient, mixed::BiasGradient::column_sums);
  EXPECT_THAT(s.notices, Contains(HasSubstr("bias_gradient=column_sums")));
  EXPECT_THAT(refusal([&] {
                mixed::variants().settle(run, {{"layernorm_backward", "separate_columns"}, {"bias_gradient", "layernorm_fold"}}, false);
              }),
              HasSubstr("bias_gradient=layernorm_fold"));
}

TEST(VariantRows, AttentionSumsColumnsWhereItsOwnBackwardRuns) {
  mixed::Run run = mixed_run(small(128, 2, 512));
  EXPECT_EQ(mixed::variants().settle(run, {}, true).choice.bias_gradient, mixed::BiasGradient::softmax_identities);
  const auto gives_way = [&](const std::map<std::string, std::string>& wanted, const char* why) {
    const auto s = mixed::variants().settle(run, wanted, false);
    EXPECT_EQ(s.choice.bias_gradient, mixed::BiasGradient::layernorm_fold);
    EXPECT_THAT(s.notices,
                Contains(AllOf(HasSubstr("bias_gradient=layernorm_fold runs, not the default softmax_identities"), HasSubstr(why))));
    for (const char* name : {"softmax_identities", "attention_fold"}) {
      std::map<std::string, std::string> with = wanted;
      with["bias_gradient"] = name;
      EXPECT_THAT(refusal_of(run, with), AllOf(HasSubstr(name), HasSubstr(why)));
    }
  };
  gives_way({{"attention_backward", "flash"}}, "only attention_backward=hopper sums columns");
  gives_way({{"attention_backward", "unfused"}}, "only attention_backward=hopper sums columns");
  run.compute_capability_major = 10;
  gives_way({}, "compute capability");
  run = mixed_run(small(64, 4, 512));
  gives_way({}, "heads of 64 channels");
}

TEST(VariantRows, SplitMastersNeedTheKernelOfAllTensors) {
  const mixed::Run run = mixed_run(small(64, 4, 512));
  EXPECT_EQ(mixed::variants().settle(run, {{"masters", "split"}}, true).choice.masters, mixed::Masters::split);
  const auto s = mixed::variants().settle(run, {{"adamw", "per_tensor"}}, false);
  EXPECT_EQ(settled(s, "masters"), "fp32");
  EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("masters=fp32 runs, not the default split"), HasSubstr("per_tensor"))));
  EXPECT_THAT(refusal([&] {
                mixed::variants().settle(run, {{"adamw", "per_tensor"}, {"masters", "split"}}, false);
              }),
              AllOf(HasSubstr("masters=split"), HasSubstr("per_tensor")));
}

TEST(VariantRows, NarrowMomentsNeedTheKernelOfAllTensorsAndNoFormOfMasters) {
  const mixed::Run run = mixed_run(small(64, 4, 512));
  for (const char* masters : {"split", "fp32"}) {
    const auto s = mixed::variants().settle(run, {{"masters", masters}}, true);
    EXPECT_EQ(s.choice.moments, mixed::Moments::split) << masters;
  }
  const auto s = mixed::variants().settle(run, {{"adamw", "per_tensor"}}, false);
  EXPECT_EQ(settled(s, "moments"), "fp32");
  EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("moments=fp32 runs, not the default split"), HasSubstr("per_tensor"))));
  for (const std::string form : {"split", "16_bits"})
    EXPECT_THAT(refusal([&] {
                  mixed::variants().settle(run, {{"adamw", "per_tensor"}, {"moments", form}}, false);
                }),
                AllOf(HasSubstr("moments=" + form), HasSubstr("per_tensor")));
}

TEST(VariantRows, Bf16GradientsAreOnlyWrittenOver) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  const auto why = [&](std::map<std::string, std::string> wanted) {
    wanted["weight_gradients"] = "bf16";
    return refusal_of(run, wanted);
  };
  EXPECT_EQ(mixed::variants().settle(run, {}, true).choice.weight_gradients, mixed::WeightGradients::as_bf16);
  for (const char* norm : {"whole", "beside_backward"}) EXPECT_EQ(why({{"grad_norm", norm}}), "") << norm;
  for (const char* bias : {"layernorm_fold", "column_sums", "matmul_epilogue"}) EXPECT_EQ(why({{"bias_gradient", bias}}), "") << bias;
  EXPECT_THAT(why({{"zero_grad", "memset"}}), AllOf(HasSubstr("weight_gradients=bf16"), HasSubstr("zero_grad=memset adds")));
  EXPECT_THAT(why({{"adamw", "per_tensor"}}), AllOf(HasSubstr("weight_gradients=bf16"), HasSubstr("per_tensor")));
  run.options.micro_batches = 2;
  EXPECT_THAT(why({}), AllOf(HasSubstr("weight_gradients=bf16"), HasSubstr("rounded again with every micro-batch")));
}

TEST(VariantRows, ABf16WteGradientIsOfOneRankWhoseBlocksHaveItToo) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  const auto why = [&](std::map<std::string, std::string> wanted) {
    wanted["wte_gradient"] = "bf16";
    return refusal_of(run, wanted);
  };
  EXPECT_EQ(mixed::variants().settle(run, {}, true).choice.wte_gradient, mixed::WteGradient::as_bf16);
  for (const char* norm : {"whole", "beside_backward"}) EXPECT_EQ(why({{"grad_norm", norm}}), "") << norm;
  EXPECT_THAT(why({{"weight_gradients", "fp32"}}), AllOf(HasSubstr("wte_gradient=bf16"), HasSubstr("keeps no gradient in bf16")));
  run.options.micro_batches = 2;  // weight_gradients gives way, and this with it
  const auto s = mixed::variants().settle(run, {}, false);
  EXPECT_EQ(s.choice.wte_gradient, mixed::WteGradient::as_fp32);
  EXPECT_EQ(settled(s, "wte_gradient"), "fp32");
  run.options.micro_batches = 1;
  run.why_no_product = [](const mixed::Gemm& g) -> std::optional<std::string> {
    if (g.transpose_a && g.c_storage == mixed::Storage::as_bf16 && g.m == 512) return "no such product";
    return std::nullopt;
  };
  EXPECT_THAT(why({}), HasSubstr("no such product"));
}

// A default gives way with the reason, and what stands in its place runs.
TEST(VariantRows, Bf16GradientsGiveWayWhereTheyCannotRun) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  const auto gives_way = [&](const std::map<std::string, std::string>& wanted, const char* reason) {
    const auto s = mixed::variants().settle(run, wanted, false);
    EXPECT_EQ(settled(s, "weight_gradients"), "fp32") << reason;
    EXPECT_EQ(s.choice.weight_gradients, mixed::WeightGradients::as_fp32) << reason;
    EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("weight_gradients=fp32 runs, not the default bf16"), HasSubstr(reason))));
  };
  gives_way({{"zero_grad", "memset"}}, "zero_grad=memset adds");
  gives_way({{"adamw", "per_tensor"}}, "per_tensor has no kernel");
  run.options.micro_batches = 2;
  gives_way({}, "rounded again with every micro-batch");
  run.options.micro_batches = 1;
  run.why_no_product = [](const mixed::Gemm& g) -> std::optional<std::string> {
    if (g.transpose_a && g.c_storage == mixed::Storage::as_bf16) return "no such product";
    return std::nullopt;
  };
  gives_way({}, "no such product");
}

// Both slots that decide about the product of a weight's gradient ask for the product that would run.
TEST(VariantRows, TheProductOfAWeightsGradientIsAskedForInItsStorage) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  const auto lacks = [&](mixed::Storage storage, mixed::Epilogue epilogue) {
    run.why_no_product = [=](const mixed::Gemm& g) -> std::optional<std::string> {
      if (g.transpose_a && g.c_storage == storage && g.epilogue == epilogue) return "no such product";
      return std::nullopt;
    };
  };
  const auto why = [&](const std::map<std::string, std::string>& wanted) { return refusal_of(run, wanted); };
  using mixed::Epilogue;
  using mixed::Storage;
  lacks(Storage::as_bf16, Epilogue::none);
  EXPECT_THAT(why({{"weight_gradients", "bf16"}}), AllOf(HasSubstr("weight_gradients=bf16"), HasSubstr("no such product")));
  EXPECT_EQ(why({{"bias_gradient", "matmul_epilogue"}}), "");
  lacks(Storage::as_bf16, Epilogue::bias_gradient);
  EXPECT_EQ(why({{"weight_gradients", "bf16"}}), "");
  EXPECT_EQ(why({{"bias_gradient", "matmul_epilogue"}}), "");
  EXPECT_EQ(settled(mixed::variants().settle(run, {{"bias_gradient", "matmul_epilogue"}}, false), "weight_gradients"), "fp32");
  EXPECT_THAT(why({{"weight_gradients", "bf16"}, {"bias_gradient", "matmul_epilogue"}}), HasSubstr("weight_gradients=bf16"));
  lacks(Storage::fp32, Epilogue::bias_gradient);
  EXPECT_EQ(why({{"bias_gradient", "matmul_epilogue"}}), "");
  EXPECT_THAT(why({{"weight_gradients", "fp32"}, {"bias_gradient", "matmul_epilogue"}}), HasSubstr("no such product"));
  run.options.micro_batches = 2;
  EXPECT_THAT(why({{"bias_gradient", "matmul_epilogue"}}), HasSubstr("no such product"));
  run.options.micro_batches = 1;
  EXPECT_EQ(why({{"weight_gradients", "bf16"}, {"bias_gradient", "matmul_epilogue"}}), "");
}

// The library is asked with the place that each gradient has in its arena: at C = 20 the second layer's are at multiples of 16 bytes in fp32
// and of 32 in bf16.
TEST(VariantRows, AProductIsAskedForAtThePlaceInItsArena) {
  mixed::Run run = mixed_run(small(20, 1, 512));
  std::set<uintptr_t> places;
  run.why_no_product = [&](const mixed::Gemm& g) -> std::optional<std::string> {
    if (g.transpose_a && g.c_storage == mixed::Storage::as_bf16) places.insert(reinterpret_cast<uintptr_t>(g.c) - (uintptr_t{1} << 20));
    return std::nullopt;
  };
  (void)mixed::variants().settle(run, {{"weight_gradients", "bf16"}}, false);
  constexpr uintptr_t kC = 400;  // C x C; two layers of qkvw (3), attprojw (1), fcw (4), fcprojw (4), one tensor after the other
  EXPECT_EQ(places, (std::set<uintptr_t>{0, 2 * 3 * kC, 2 * 6 * kC, 2 * 7 * kC, 2 * 8 * kC, 2 * 12 * kC, 2 * 16 * kC, 2 * 20 * kC}));
}

TEST(VariantRows, ProgrammaticEdgesNeedAGraphAndHopper) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  EXPECT_EQ(mixed::variants().settle(run, {{"graph_edges", "programmatic"}}, true).choice.graph_edges, mixed::GraphEdges::programmatic);
  // As a default it gives way with the reason; asked for by name it is refused with the same one.
  const auto gives_way = [&](std::map<std::string, std::string> wanted, const char* why) {
    const auto s = mixed::variants().settle(run, wanted, false);
    EXPECT_EQ(settled(s, "graph_edges"), "full") << why;
    EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("graph_edges=full runs, not the default programmatic"), HasSubstr(why))));
    wanted["graph_edges"] = "programmatic";
    EXPECT_THAT(refusal_of(run, wanted), AllOf(HasSubstr("graph_edges=programmatic"), HasSubstr(why)));
  };
  gives_way({{"step_launch", "stream"}}, "no graph");
  run.why_no_kernel_names = "an old driver";
  gives_way({}, "an old driver");
  run.compute_capability_major = 8;
  gives_way({}, "sm_90");
}

// They keep GELU's gradient where the others keep GELU's input, so that none goes with another's half.
TEST(VariantRows, OurOwnProductsWithGeluNeedHopperAndEachOther) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  using Wanted = std::map<std::string, std::string>;
  const auto why = [&](const Wanted& wanted) { return refusal_of(run, wanted); };
  const auto both = [&](const Wanted& wanted, const char* name, const char* reason) {
    const auto s = mixed::variants().settle(run, wanted, true);
    EXPECT_EQ(settled(s, "gelu_forward"), name) << reason;
    EXPECT_EQ(settled(s, "gelu_backward"), name) << reason;
    if (*reason != 0) {
      EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("not the default hopper"), HasSubstr(reason))));
    }
  };
  both({}, "", "");
  both({{"gelu_forward", "matmul_epilogue"}}, "matmul_epilogue", "only gelu_forward=hopper keeps GELU's gradient");
  both({{"gelu_backward", "matmul_epilogue"}}, "matmul_epilogue", "only gelu_backward=hopper reads what it keeps");
  EXPECT_EQ(settled(mixed::variants().settle(run, {{"gelu_backward", "kernel"}}, false), "gelu_forward"), "matmul_epilogue");
  for (const char* other : {"matmul_epilogue", "kernel"}) {
    EXPECT_THAT(why({{"gelu_forward", "hopper"}, {"gelu_backward", other}}),
                AllOf(HasSubstr("gelu_forward=hopper"), HasSubstr("only gelu_backward=hopper reads")));
    EXPECT_THAT(why({{"gelu_forward", other}, {"gelu_backward", "hopper"}}),
                AllOf(HasSubstr("gelu_backward=hopper"), HasSubstr("only gelu_forward=hopper keeps")));
  }
  run.options.recompute = "gelu";
  both({}, "matmul_epilogue", "--recompute gelu");
  for (const char* slot : {"gelu_forward", "gelu_backward"}) EXPECT_THAT(why({{slot, "hopper"}}), HasSubstr("--recompute gelu")) << slot;
  run.options.recompute = "none";
  for (const auto& [major, minor] : {std::pair(8, 6), std::pair(10, 0)}) {
    run.compute_capability_major = major, run.compute_capability_minor = minor;
    both({}, "matmul_epilogue", "only GPUs of compute capability 9.0");
    for (const char* slot : {"gelu_forward", "gelu_backward"})
      EXPECT_THAT(why({{slot, "hopper"}}),
                  AllOf(HasSubstr("only GPUs of compute capability 9.0"), HasSubstr(fmt::format("this one has {}.{}", major, minor))));
  }
  mixed::Run odd = mixed_run(small(60, 4, 512));
  EXPECT_THAT(refusal([&] {
                mixed::variants().settle(odd, {{"gelu_backward", "hopper"}}, false);
              }),
              HasSubstr("C = 60 is no multiple of 8"));
}

TEST(VariantRows, TheHeadWithoutLogitsNeedsHopperAndRowsOfWholePacks) {
  const auto why = [&](const mixed::Run& run) { return refusal([&] { mixed::variants().settle(run, {{"lm_head", "hopper"}}, true); }); };
  mixed::Run run = mixed_run(small(64, 4, 512));
  EXPECT_EQ(why(run), "");
  run.options.recompute = "gelu+ln";
  EXPECT_EQ(why(run), "");
  run.options.recompute = "none";
  run.compute_capability_major = 8, run.compute_capability_minor = 9;
  EXPECT_THAT(why(run), AllOf(HasSubstr("lm_head=hopper"), HasSubstr("only GPUs of compute capability 9.0"), HasSubstr("has 8.9")));
  EXPECT_THAT(why(mixed_run(small(60, 4, 512))), HasSubstr("C = 60 is no multiple of 8"));
  mixed::Run odd = mixed_run(small(64, 4, 509));
  EXPECT_THAT(why(odd), HasSubstr("Vp = 509 is no multiple of 8"));
}

// Which of two plans is the faster differs from process to process where they are close.
TEST(VariantRows, AMeasuredPlanIsNoChoiceOfADeterministicRun) {
  if (mixed::why_no_cudnn()) GTEST_SKIP() << *mixed::why_no_cudnn();
  const mixed::Run run = mixed_run(small(64, 4, 512));
  EXPECT_EQ(settled(mixed::variants().settle(run, {}, false), "attention_plan"), "");
  EXPECT_EQ(settled(mixed::variants().settle(run, {}, true), "attention_plan"), "heuristic");
  EXPECT_THAT(refusal([&] {
                mixed::variants().settle(run, {{"attention_plan", "measured"}}, true);
              }),
              HasSubstr("attention_plan=measured"));
}

TEST(VariantRows, WithoutCudnnTheMeasuredPlanGivesWayAndTheReasonIsSaid) {
  if (!mixed::why_no_cudnn()) GTEST_SKIP() << "cuDNN is here; STEPSCOPE_CUDNN_LIBRARY=/nonexistent takes it away";
  const auto s = mixed::variants().settle(mixed_run(small(64, 4, 512)), {}, false);
  EXPECT_EQ(settled(s, "attention_plan"), "heuristic");
  EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("attention_plan=heuristic runs, not the default measured"), HasSubstr("cuDNN"))));
}

// Both slots, whether a choice must repeat or not, and what a refusal says to who asked by name.
TEST(VariantRows, TheAttentionForHopperGivesWayElsewhereAndForOtherHeads) {
  for (const bool deterministic : {false, true}) {
    const auto s = mixed::variants().settle(mixed_run(small(128, 2, 512)), {}, deterministic);
    EXPECT_EQ(settled(s, "attention_forward"), "");
    EXPECT_EQ(settled(s, "attention_backward"), "");
  }
  const bool cudnn = !mixed::why_no_cudnn();
  const auto gives_way = [&](const mixed::Run& run, const char* reason) {
    const auto s = mixed::variants().settle(run, {}, false);
    EXPECT_EQ(settled(s, "attention_forward"), cudnn ? "cudnn" : "flash");
    EXPECT_EQ(settled(s, "attention_backward"), cudnn ? "cudnn" : "flash");
    EXPECT_THAT(s.notices, Contains(AllOf(HasSubstr("attention_backward="), HasSubstr("not the default hopper"), HasSubstr(reason))));
    EXPECT_EQ(settled(mixed::variants().settle(run, {}, true), "attention_backward"), cudnn ? "cudnn_deterministic" : "flash");
    for (const char* slot : {"attention_forward", "attention_backward"})
      EXPECT_THAT(refusal([&] {
                    mixed::variants().settle(run, {{slot, "hopper"}}, true);
                  }),
                  AllOf(HasSubstr(std::string(slot) + "=hopper"), HasSubstr(reason)));
  };
  gives_way(mixed_run(small(64, 4, 512)), "heads of 64 channels, the model has 16");
  mixed::Run run = mixed_run(small(128, 2, 512));
  run.compute_capability_major = 8, run.compute_capability_minor = 9;
  gives_way(run, "only GPUs of compute capability 9.0 have, and this one has 8.9");
}

TEST(VariantRows, CudnnGivesWayToFlashWhereItHasNoPlan) {
  if (mixed::why_no_cudnn()) GTEST_SKIP() << *mixed::why_no_cudnn();
  mixed::Run run = mixed_run(small(64, 4, 512));
  run.why_no_cudnn_attention = [](bool) -> std::optional<std::string> { return "no plan"; };
  const auto s = mixed::variants().settle(run, {}, false);
  EXPECT_EQ(settled(s, "attention_forward"), "flash");
  EXPECT_EQ(settled(s, "attention_backward"), "flash");
  EXPECT_THAT(refusal_of(run, {{"attention_forward", "cudnn"}}), HasSubstr("no plan"));
}

TEST(VariantRows, AnOldNameNamesTheNewOne) {
  EXPECT_THAT(refusal([] { (void)fp32::variant_index("classifier", "row_in_shared"); }), HasSubstr("classifier=one_read"));
  EXPECT_THAT(refusal([] { (void)fp32::variant_index("attention_forward", "fused"); }), HasSubstr("attention_forward=flash"));
}

}  // namespace
}  // namespace trainers
