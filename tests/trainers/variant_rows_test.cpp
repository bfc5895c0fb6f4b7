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

TEST(VariantRows, EveryShippedModelHasVariantsThatRunAndSaysWhichAreNotTheDefault) {
  for (const std::string& name : gpt2::model_names()) {
    SCOPED_TRACE(name);
    const gpt2::ModelConfig model = gpt2::model_from_name(name);
    const auto m = mixed::variants().settle(mixed_run(model), {}, false);
    EXPECT_EQ(settled(m, "layernorm_forward"), model.channels > 2048 ? "block_per_row" : "");
    EXPECT_EQ(settled(m, "layernorm_backward"), model.channels > 8192 ? "separate_columns" : "");
    EXPECT_EQ(settled(m, "bias_gradient"), model.channels > 8192 ? "column_sums" : "");
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
    return refusal([&] { mixed::variants().settle(mixed_run(model), {{slot, name}}, false); });
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
  EXPECT_THAT(ask(small(12288, 96, 512), "layernorm_backward", "fused_rows"), HasSubstr("8192"));
  EXPECT_EQ(ask(small(64, 4, 50304), "classifier", "one_read"), "");
}

// What cuBLASLt has no kernel for, it says when the variants are settled; a default gives way, a variant that was asked for is refused.
TEST(VariantRows, AProductThatTheLibraryLacksIsNoSilentFallback) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  run.why_no_product = [](const mixed::Gemm& g) -> std::optional<std::string> {
    if (g.epilogue != mixed::Epilogue::none) return "cuBLASLt has no kernel for it";
    return std::nullopt;
  };
  const auto s = mixed::variants().settle(run, {}, false);
  EXPECT_EQ(settled(s, "gelu_forward"), "kernel");
  EXPECT_EQ(settled(s, "gelu_backward"), "kernel");
  EXPECT_EQ(settled(s, "linear_forward"), "bias_kernel");
  EXPECT_EQ(settled(s, "bias_gradient"), "");
  for (const auto& [slot, name] : std::map<std::string, std::string>{{"residual", "matmul_epilogue"},
                                                                     {"gelu_forward", "matmul_epilogue"},
                                                                     {"linear_forward", "bias_epilogue"},
                                                                     {"bias_gradient", "matmul_epilogue"}})
    EXPECT_THAT(refusal([&] {
                  mixed::variants().settle(run, {{slot, name}}, false);
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
  EXPECT_THAT(refusal([&] { mixed::variants().settle(run, {{"residual", "matmul_epilogue"}}, false); }), HasSubstr("no fp32 output"));
  EXPECT_EQ(refusal([&] { mixed::variants().settle(run, {{"residual", "matmul_epilogue"}, {"residual_stream", "bf16"}}, false); }), "");
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

TEST(VariantRows, SplitMastersNeedTheKernelOfAllTensors) {
  const mixed::Run run = mixed_run(small(64, 4, 512));
  EXPECT_EQ(settled(mixed::variants().settle(run, {{"masters", "split"}}, true), "masters"), "split");
  EXPECT_THAT(refusal([&] {
                mixed::variants().settle(run, {{"adamw", "per_tensor"}, {"masters", "split"}}, false);
              }),
              AllOf(HasSubstr("masters=split"), HasSubstr("per_tensor")));
}

TEST(VariantRows, ProgrammaticEdgesNeedAGraphAndHopper) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  EXPECT_EQ(settled(mixed::variants().settle(run, {{"graph_edges", "programmatic"}}, true), "graph_edges"), "programmatic");
  EXPECT_THAT(refusal([&] {
                mixed::variants().settle(run, {{"step_launch", "stream"}, {"graph_edges", "programmatic"}}, false);
              }),
              AllOf(HasSubstr("graph_edges=programmatic"), HasSubstr("no graph")));
  run.compute_capability_major = 8;
  EXPECT_THAT(refusal([&] { mixed::variants().settle(run, {{"graph_edges", "programmatic"}}, false); }), HasSubstr("sm_90"));
}

// It keeps GELU's gradient, from which nothing else can go on.
TEST(VariantRows, OurOwnProductsWithGeluNeedHopperAndEachOther) {
  mixed::Run run = mixed_run(small(64, 4, 512));
  const auto why = [&](const std::map<std::string, std::string>& wanted) {
    return refusal([&] { mixed::variants().settle(run, wanted, false); });
  };
  const auto s = mixed::variants().settle(run, {{"gelu_forward", "hopper"}}, true);
  EXPECT_EQ(settled(s, "gelu_backward"), "hopper");
  EXPECT_THAT(s.notices, Contains(HasSubstr("gelu_backward=hopper runs, not the default matmul_epilogue")));
  for (const char* backward : {"matmul_epilogue", "kernel"})
    EXPECT_THAT(why({{"gelu_forward", "hopper"}, {"gelu_backward", backward}}),
                AllOf(HasSubstr(std::string("gelu_backward=") + backward), HasSubstr("keeps GELU's gradient")));
  for (const char* forward : {"matmul_epilogue", "kernel"}) EXPECT_EQ(why({{"gelu_forward", forward}, {"gelu_backward", "hopper"}}), "");
  run.options.recompute = "gelu";
  EXPECT_THAT(why({{"gelu_forward", "hopper"}}), HasSubstr("--recompute gelu"));
  EXPECT_EQ(why({{"gelu_backward", "hopper"}}), "");
  run.options.recompute = "none";
  for (const int major : {8, 10}) {
    run.compute_capability_major = major;
    for (const char* slot : {"gelu_forward", "gelu_backward"})
      EXPECT_THAT(why({{slot, "hopper"}}),
                  AllOf(HasSubstr("only GPUs of compute capability 9.0"), HasSubstr(std::to_string(major) + ".0")));
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
  run.compute_capability_major = 10;
  EXPECT_THAT(why(run), AllOf(HasSubstr("lm_head=hopper"), HasSubstr("only GPUs of compute capability 9.0")));
  EXPECT_THAT(why(mixed_run(small(60, 4, 512))), HasSubstr("C = 60 is no multiple of 8"));
  mixed::Run odd = mixed_run(small(64, 4, 509));
  EXPECT_THAT(why(odd), HasSubstr("Vp = 509 is no multiple of 8"));
}

// Which of two plans is the faster differs from process to process where they are close.
TEST(VariantRows, AMeasuredPlanIsNoChoiceOfADeterministicRun) {
  const mixed::Run run = mixed_run(small(64, 4, 512));
  EXPECT_THAT(refusal([&] {
                mixed::variants().settle(run, {{"attention_plan", "measured"}}, true);
              }),
              HasSubstr("attention_plan=measured"));
}

TEST(VariantRows, CudnnGivesWayToFlashWhereItHasNoPlan) {
  if (mixed::why_no_cudnn()) GTEST_SKIP() << *mixed::why_no_cudnn();
  mixed::Run run = mixed_run(small(64, 4, 512));
  run.why_no_cudnn_attention = [](bool) -> std::optional<std::string> { return "no plan"; };
  const auto s = mixed::variants().settle(run, {}, false);
  EXPECT_EQ(settled(s, "attention_forward"), "flash");
  EXPECT_EQ(settled(s, "attention_backward"), "flash");
  EXPECT_THAT(refusal([&] { mixed::variants().settle(run, {{"attention_forward", "cudnn"}}, false); }), HasSubstr("no plan"));
}

TEST(VariantRows, AnOldNameNamesTheNewOne) {
  EXPECT_THAT(refusal([] { (void)fp32::variant_index("classifier", "row_in_shared"); }), HasSubstr("classifier=one_read"));
  EXPECT_THAT(refusal([] { (void)fp32::variant_index("attention_forward", "fused"); }), HasSubstr("attention_forward=flash"));
}

}  // namespace
}  // namespace trainers
