// The memory plan is host arithmetic (with flash attention, which asks no library), so a machine without a GPU can hold it to its
// promises: tensors do not overlap, offsets do not wrap at 2^31, recompute saves what it says, and the batch named in the
// out-of-memory text is the last one that fits.
#include "mixed/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/errors.h"
#include "gpt2/config.h"
#include "mixed/kernels/attention.cuh"
#include "mixed/matmul.h"
#include "tests/mixed/no_communicator.h"

namespace mixed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

gpt2::TrainerOptions d12(int64_t batch, int64_t seq) {
  gpt2::TrainerOptions o;
  o.model = gpt2::model_from_name("d12");
  o.batch_size = batch;
  o.seq_len = seq;
  return o;
}

VariantChoice flash() {
  VariantChoice v;
  v.attention_forward = AttentionForward::flash;
  v.attention_backward = AttentionBackward::flash;
  v.bias_gradient = BiasGradient::layernorm_fold;
  return v;
}

struct Extent {
  std::string name;
  int64_t begin = 0, end = 0;
};

// Every tensor of the activation arena in bytes, one entry per place.
std::vector<Extent> extents(const MemoryPlan& plan, const gpt2::TrainerOptions& o, const VariantChoice& v) {
  const int64_t rows = o.batch_size * o.seq_len;
  const int64_t C = o.model.channels;
  const int64_t L = o.model.layers;
  const int64_t gelus = plan.recompute == Recompute::none ? L : 1;
  const int64_t norms = plan.recompute == Recompute::gelu_and_layernorm ? 1 : L;
  const ActivationSlots& a = plan.activations;
  std::vector<Extent> all;
  const auto add = [&](const std::string& name, const Slot& slot, int64_t bytes, int64_t places) {
    for (int64_t l = 0; l < places; ++l) all.push_back({name + " " + std::to_string(l), slot.at(l), slot.at(l) + bytes});
    if (places == 1) {
      EXPECT_EQ(slot.at(0), slot.at(L - 1)) << name << " is shared by the layers";
    }
  };
  add("encoded", a.encoded, rows * C * 2, 1);
  add("ln1", a.ln1, rows * C * 2, norms);
  add("ln1_mean", a.ln1_mean, rows * 4, L);
  add("ln1_rstd", a.ln1_rstd, rows * 4, L);
  add("qkv", a.qkv, rows * 3 * C * 2, L);
  add("attention", a.attention, rows * C * 2, L);
  add("lse", a.lse, rows * o.model.heads * 4, L);
  add("residual1", a.residual1, rows * C * 2, L);
  add("ln2", a.ln2, rows * C * 2, norms);
  add("ln2_mean", a.ln2_mean, rows * 4, L);
  add("ln2_rstd", a.ln2_rstd, rows * 4, L);
  add("mlp_up", a.mlp_up, rows * 4 * C * 2, L);
  add("gelu", a.gelu, rows * 4 * C * 2, gelus);
  add("residual2", a.residual2, rows * C * 2, L);
  add("lnf", a.lnf, rows * C * 2, 1);
  add("lnf_mean", a.lnf_mean, rows * 4, 1);
  add("lnf_rstd", a.lnf_rstd, rows * 4, 1);
  add("logits", a.logits, rows * o.model.padded_vocab * 2, 1);
  add("losses", a.losses, rows * 4, 1);
  if (v.lm_head == LmHead::hopper) add("head_factors", a.head_factors, rows * 4, 1);
  if (v.residual_stream != ResidualStream::as_bf16)
    add("stream", a.stream, rows * C * (v.residual_stream == ResidualStream::split ? 1 : 4), 1);
  const std::array of_gradient{1, 4, 2};  // in the order of the enumerators
  add("dresidual", a.dresidual, rows * C * of_gradient[static_cast<size_t>(v.residual_gradient)], 1);
  if (v.residual_gradient != ResidualGradient::as_bf16) add("dresidual_rounded", a.dresidual_rounded, rows * C * 2, 1);
  return all;
}

void expect_apart_and_inside(std::vector<Extent> all, int64_t total) {
  std::sort(all.begin(), all.end(), [](const Extent& x, const Extent& y) { return x.begin < y.begin; });
  EXPECT_EQ(all.front().begin, 0);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].end, all[i].begin) << all[i - 1].name << " runs into " << all[i].name;
  EXPECT_LE(all.back().end, total) << all.back().name << " runs over the arena's end";
}

TEST(MixedMemoryPlan, NoTwoActivationsShareMemory) {
  for (gpt2::TrainerOptions o : {d12(4, 1024), d12(3, 65), d12(1, 1), d12(64, 1024)})
    for (const char* recompute : {"none", "gelu", "gelu+ln"})
      for (int way = 0; way < 9; ++way) {
        o.recompute = recompute;
        VariantChoice v = flash();
        v.residual_stream = std::array{ResidualStream::split, ResidualStream::as_fp32, ResidualStream::as_bf16}[way % 3];
        v.residual_gradient = std::array{ResidualGradient::split, ResidualGradient::as_fp32, ResidualGradient::as_bf16}[way / 3];
        v.lm_head = way % 2 == 1 ? LmHead::hopper : LmHead::logits;
        const MemoryPlan plan = plan_memory(o, v);
        expect_apart_and_inside(extents(plan, o, v), plan.activation_bytes);
      }
}

TEST(MixedMemoryPlan, EveryTensorIsAlignedFor16ByteAccess) {
  const gpt2::TrainerOptions o = d12(3, 65);
  for (const Extent& e : extents(plan_memory(o, flash()), o, flash())) EXPECT_EQ(e.begin % 16, 0) << e.name;
}

// B=4, T=1024, C=768: 3,145,728 values. Beside the rounded copy, which is there either way, 1 byte and not 4 a value of the stream, and of
// its gradient.
TEST(MixedMemoryPlan, ASplitResidualStreamTakesThreeBytesLessAValueThanFp32) {
  VariantChoice v = flash();
  v.residual_stream = ResidualStream::split;
  v.residual_gradient = ResidualGradient::split;
  const int64_t split = plan_memory(d12(4, 1024), v).activation_bytes;
  v.residual_stream = ResidualStream::as_fp32;
  EXPECT_EQ(plan_memory(d12(4, 1024), v).activation_bytes - split, 9437184);
  v.residual_gradient = ResidualGradient::as_fp32;
  EXPECT_EQ(plan_memory(d12(4, 1024), v).activation_bytes - split, 18874368);
}

void expect_same_but(const MemoryPlan& plan, const MemoryPlan& other, std::string_view item, int64_t bytes) {
  ASSERT_EQ(plan.items.size(), other.items.size());
  for (size_t i = 0; i < plan.items.size(); ++i)
    EXPECT_EQ(plan.items[i].bytes, plan.items[i].name == item ? bytes : other.items[i].bytes) << plan.items[i].name;
}

// 16 bits and one: 2.125 bytes.
TEST(MixedMemoryPlan, SplitMastersTakeSeventeenBitsAParameter) {
  VariantChoice v = flash();
  v.masters = Masters::split;
  const MemoryPlan plan = plan_memory(d12(4, 1024), v);
  const auto item = std::find_if(plan.items.begin(), plan.items.end(), [](const auto& i) { return i.name == "master weights"; });
  ASSERT_NE(item, plan.items.end());
  EXPECT_EQ(item->bytes, 264511296);  // 124,475,904 x 17 / 8
}

// Twice 3 bytes, 746.9 MB of d12, where fp32 takes 995.8: 248,951,808 bytes less, and nothing else changes.
TEST(MixedMemoryPlan, SplitMomentsTakeSixBytesAParameter) {
  VariantChoice v = flash();
  v.moments = Moments::as_fp32;
  const MemoryPlan whole = plan_memory(d12(4, 1024), v);
  v.moments = Moments::split;
  const MemoryPlan plan = plan_memory(d12(4, 1024), v);
  expect_same_but(plan, whole, "optimizer state", 746855424);
  EXPECT_EQ(whole.total_bytes() - plan.total_bytes(), 248951808);
}

// Twice 2 bytes: half of what fp32 takes.
TEST(MixedMemoryPlan, MomentsOf16BitsTakeFourBytesAParameter) {
  VariantChoice v = flash();
  v.moments = Moments::as_fp32;
  const MemoryPlan whole = plan_memory(d12(4, 1024), v);
  v.moments = Moments::as_16_bits;
  const MemoryPlan plan = plan_memory(d12(4, 1024), v);
  expect_same_but(plan, whole, "optimizer state", 497903616);
  EXPECT_EQ(whole.total_bytes() - plan.total_bytes(), 497903616);
}

// The matrices of 12 layers at C = 768, 84,934,656 elements, take 2 bytes and not 4: 169.9 MB less, and nothing else changes.
TEST(MixedMemoryPlan, Bf16WeightGradientsTakeHalfOfTheBlocksMatrices) {
  VariantChoice v = flash();
  v.weight_gradients = WeightGradients::as_fp32;
  const MemoryPlan wide = plan_memory(d12(4, 1024), v);
  v.weight_gradients = WeightGradients::as_bf16;
  v.wte_gradient = WteGradient::as_fp32;
  const MemoryPlan plan = plan_memory(d12(4, 1024), v);
  expect_same_but(plan, wide, "gradients", 328034304);
  EXPECT_EQ(plan.narrow_gradient_elements(), 84934656);
  EXPECT_EQ(plan.wide_gradient_elements() + plan.narrow_gradient_elements(), plan.parameter_count);
  EXPECT_EQ(wide.wide_gradient_elements(), wide.parameter_count);
}

// And wte's 50,304 x 768: 77.3 MB less, and nothing else changes.
TEST(MixedMemoryPlan, ABf16WteGradientTakesHalfOfItsBytes) {
  VariantChoice v = flash();
  v.wte_gradient = WteGradient::as_fp32;
  const MemoryPlan wide = plan_memory(d12(4, 1024), v);
  v.wte_gradient = WteGradient::as_bf16;
  const MemoryPlan plan = plan_memory(d12(4, 1024), v);
  expect_same_but(plan, wide, "gradients", 328034304 - 2 * 50304 * 768);
  EXPECT_EQ(plan.narrow_gradient_elements() - wide.narrow_gradient_elements(), 50304 * 768);
  EXPECT_EQ(wide.total_bytes() - plan.total_bytes(), 2 * 50304 * 768);
}

// Two ranks that divide the update. Biases and norms fill no whole blocks of 2,048: 10,496 elements of padding in each of 12 layers and
// 2,560 behind lnf. Gradients are whole on each: those of the matrices in bf16, all others in fp32.
TEST(MixedMemoryPlan, RanksStoreWhatOneRankDoesAndDivideIt) {
  NoCommunicator two;
  gpt2::TrainerOptions o = d12(4, 1024);
  o.communicator = &two;
  VariantChoice v = flash();
  v.communication = Communication::zero1_ahead;
  v.masters = Masters::split;
  v.moments = Moments::split;
  v.weight_gradients = WeightGradients::as_bf16;
  v.wte_gradient = WteGradient::as_fp32;
  const MemoryPlan plan = plan_memory(o, v);
  const int64_t whole = plan.whole_elements(), slice = whole / 2;
  EXPECT_EQ(whole - plan.parameter_count, 12 * 10496 + 2560);
  std::map<std::string_view, int64_t> bytes;
  for (const auto& item : plan.items) bytes[item.name] = item.bytes;
  EXPECT_EQ(bytes["bf16 weights"], 2 * whole);
  EXPECT_EQ(bytes["master weights"], 2 * slice + slice / 8);
  EXPECT_EQ(bytes["optimizer state"], 6 * slice);
  EXPECT_EQ(plan.narrow_gradient_elements(), 84934656);
  EXPECT_EQ(bytes["gradients"], 2 * 84934656 + 4 * (whole - 84934656));
  v.weight_gradients = WeightGradients::as_fp32;
  EXPECT_EQ(plan_memory(o, v).narrow_gradient_elements(), 0);
}

TEST(MixedMemoryPlan, EveryGradientHasAPlaceOfItsOwnInOneOfTwoArenas) {
  const gpt2::TensorLayout layout =
      gpt2::tensor_layout({.max_seq_len = 7, .vocab_size = 61, .padded_vocab = 61, .layers = 3, .heads = 1, .channels = 9});
  for (const WteGradient wte : {WteGradient::as_bf16, WteGradient::as_fp32}) {
    EXPECT_FALSE(gradient_arenas(WeightGradients::as_fp32, wte, layout).has_value());
    const auto arenas = gradient_arenas(WeightGradients::as_bf16, wte, layout);
    ASSERT_TRUE(arenas.has_value());
    int64_t end[2] = {0, 0};  // of the fp32 and of the bf16 arena
    std::string narrow;
    for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
      int64_t& at = end[arenas->is_narrow(row.id) ? 1 : 0];
      EXPECT_EQ((*arenas)[row.id], at) << row.name;
      at += layout[row.id].size;
      if (arenas->is_narrow(row.id)) narrow += std::string(row.name) + " ";
    }
    EXPECT_EQ(narrow, wte == WteGradient::as_bf16 ? "wte qkvw attprojw fcw fcprojw " : "qkvw attprojw fcw fcprojw ");
    EXPECT_EQ(end[0], arenas->wide_elements);
    EXPECT_EQ(end[1], arenas->narrow_elements);
  }
}

// One row of 4 C floats for every 128 rows of a micro-batch. GELU's gradient takes the place of GELU's input.
TEST(MixedMemoryPlan, ColumnSumsOfOurOwnProductFitTheScratch) {
  VariantChoice v = flash();
  for (const int64_t batch : {1, 3, 64, 256}) {
    const gpt2::TrainerOptions o = d12(batch, 1023);
    v.gelu_forward = v.gelu_backward = Gelu::matmul_epilogue;
    const MemoryPlan library = plan_memory(o, v);
    v.gelu_forward = v.gelu_backward = Gelu::hopper;
    const MemoryPlan own = plan_memory(o, v);
    EXPECT_GE(own.scratch_bytes, (batch * 1023 + 127) / 128 * (4 * 768) * 4) << batch;
    EXPECT_EQ(own.activation_bytes, library.activation_bytes) << batch;
  }
}

// With one token a sequence every tile is a token's, so that nothing needs more scratch memory than the sums.
TEST(MixedMemoryPlan, ColumnSumsOfAttentionLieBehindItsScratch) {
  VariantChoice v = flash();
  v.attention_backward = AttentionBackward::hopper;
  for (const int64_t batch : {1024, 4096}) {
    const gpt2::TrainerOptions o = d12(batch, 1);
    const AttentionShape shape{batch, 1, 768, 12};
    for (const BiasGradient bias : {BiasGradient::attention_fold, BiasGradient::softmax_identities}) {
      v.bias_gradient = bias;
      const MemoryPlan plan = plan_memory(o, v);
      EXPECT_EQ(attention_sums_bytes(v.bias_gradient, shape), batch * 3 * 768 * 4);
      std::vector<float> scratch(static_cast<size_t>(plan.scratch_bytes / 4));
      const hopper::ColumnSums sums = attention_sums(v.bias_gradient, v.attention_backward, v.attention_plan, shape, scratch.data());
      EXPECT_EQ(sums.of_q_alone, bias == BiasGradient::softmax_identities);
      EXPECT_EQ(sums.rows - scratch.data(), batch * 12 * 64 * 2) << "behind the statistics of a tile for every head";
      EXPECT_EQ(scratch.data() + scratch.size() - sums.rows, batch * 3 * 768) << batch;
      v.bias_gradient = BiasGradient::layernorm_fold;
      EXPECT_TRUE(attention_sums(v.bias_gradient, v.attention_backward, v.attention_plan, shape, nullptr) == nullptr);
      EXPECT_LT(plan_memory(o, v).scratch_bytes, plan.scratch_bytes) << batch;
    }
  }
}

// Of every row two offsets and a sum for every 192 columns of the vocabulary, in the scratch memory; and its factor, which waits for the
// backward pass.
TEST(MixedMemoryPlan, TheHeadWithoutLogitsHasSumsInTheScratchAndAFactorForEveryRow) {
  VariantChoice v = flash();
  for (const int64_t batch : {1, 3, 64}) {
    const gpt2::TrainerOptions o = d12(batch, 1023);
    v.lm_head = LmHead::logits;
    const MemoryPlan logits = plan_memory(o, v);
    v.lm_head = LmHead::hopper;
    const MemoryPlan own = plan_memory(o, v);
    const int64_t rows = batch * 1023;
    EXPECT_GE(own.scratch_bytes, ((50304 + 191) / 192 + 2) * rows * 4) << batch;
    EXPECT_EQ(own.activation_bytes - logits.activation_bytes, (rows * 4 + 255) / 256 * 256) << batch;
  }
}

TEST(MixedMemoryPlan, EachItemIsWhatItsNameSays) {
  VariantChoice v = flash();
  v.masters = Masters::as_fp32;
  v.moments = Moments::as_fp32;
  v.weight_gradients = WeightGradients::as_fp32;
  const MemoryPlan plan = plan_memory(d12(4, 1024), v);
  std::map<std::string, int64_t> bytes;
  for (const gpt2::MemoryItem& item : plan.items) bytes[item.name] += item.bytes;
  constexpr int64_t kParameters = 124475904;  // with the padded vocabulary
  EXPECT_EQ(bytes["bf16 weights"], 2 * kParameters);
  EXPECT_EQ(bytes["master weights"], 4 * kParameters);
  EXPECT_EQ(bytes["gradients"], 4 * kParameters);
  EXPECT_EQ(bytes["optimizer state"], 8 * kParameters);
  EXPECT_EQ(bytes["activations"], plan.activation_bytes);
  EXPECT_EQ(bytes["matmul workspace"], kMatmulWorkspaceBytes);
}

TEST(MixedMemoryPlan, RecomputeSavesTheActivationsThatItMakesAgain) {
  const int64_t tensor = int64_t{64} * 1024 * 768 * 2;
  const auto bytes = [](const char* recompute) {
    gpt2::TrainerOptions o = d12(64, 1024);
    o.recompute = recompute;
    return plan_memory(o, flash()).activation_bytes;
  };
  EXPECT_EQ(bytes("none") - bytes("gelu"), 11 * 4 * tensor);
  EXPECT_EQ(bytes("gelu") - bytes("gelu+ln"), 11 * 2 * tensor);
}

TEST(MixedMemoryPlan, ActivationsGrowLinearlyWithTheBatch) {
  const auto bytes = [](int64_t batch) { return plan_memory(d12(batch, 1024), flash()).activation_bytes; };
  EXPECT_EQ(bytes(8) - bytes(4), bytes(12) - bytes(8));
  EXPECT_EQ(bytes(64) - bytes(60), bytes(8) - bytes(4));
}

TEST(MixedMemoryPlan, TheLargestBatchIsTheLastThatFits) {
  for (const int64_t free_bytes : {int64_t{8} << 30, int64_t{80} << 30, int64_t{139} << 30}) {
    const int64_t batch = largest_batch(d12(1, 1024), flash(), free_bytes);
    ASSERT_GE(batch, 1);
    EXPECT_LE(plan_memory(d12(batch, 1024), flash()).total_bytes(), free_bytes);
    EXPECT_GT(plan_memory(d12(batch + 1, 1024), flash()).total_bytes(), free_bytes);
  }
  EXPECT_EQ(largest_batch(d12(1, 1024), flash(), int64_t{1} << 30), 0);
}

TEST(MixedMemoryPlan, OutOfMemorySaysWhatIsNeededWhatIsFreeAndWhatFits) {
  const gpt2::TrainerOptions o = d12(1000, 1024);
  const int64_t free_bytes = int64_t{80} << 30;
  const int64_t batch = largest_batch(o, flash(), free_bytes);
  try {
    gpt2::ops::require_memory(
        plan_memory(o, flash()), o, [&] { return largest_batch(o, flash(), free_bytes); }, free_bytes, "NVIDIA Test");
    FAIL() << "a batch of 1000 fits 80 GiB";
  } catch (const stepscope::MachineError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("--batch-size 1000"), HasSubstr("activations"), HasSubstr("NVIDIA Test has 80.00 GiB free"),
                                HasSubstr("--batch-size " + std::to_string(batch))));
  }
}

TEST(MixedMemoryPlan, ImpossibleShapesAndOptionsNameTheirFlag) {
  const auto refusal = [](const gpt2::TrainerOptions& o) -> std::string {
    try {
      plan_memory(o, flash());
    } catch (const stepscope::InputError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(d12(0, 1024)), HasSubstr("--batch-size 0"));
  EXPECT_THAT(refusal(d12(4, 1025)), HasSubstr("--seq-len 1025"));
  gpt2::TrainerOptions o = d12(4, 64);
  o.recompute = "everything";
  EXPECT_THAT(refusal(o), AllOf(HasSubstr("--recompute everything"), HasSubstr("gelu+ln")));
}

}  // namespace
}  // namespace mixed
