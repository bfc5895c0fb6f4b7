// What only the mixed trainer promises, on a device: graphs change nothing, fresh scalars reach a captured graph, bf16 weights follow
// their masters, recompute and stochastic rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "base/errors.h"
#include "tests/trainers/device_fixture.h"

namespace mixed {
namespace {

using gpt2::Batch;
using gpt2::State;
using reference_test::Tokens;
using trainers::read_state;
using trainers::same_bits;

float to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits += 0x7fff + (bits >> 16 & 1);
  bits &= 0xffff0000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

class MixedStep : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  }
  std::unique_ptr<gpt2::Trainer> fresh() const { return trainers::lively_trainer(kind_, options_); }
  Tokens tokens(uint32_t seed) const { return trainers::tokens_of(options_, seed); }
  // One step with its own learning rate, clip and so on, so that a stale scalar shows.
  gpt2::StepOutcome step(gpt2::Trainer& t, int64_t number, bool graph = true, int64_t micro_batches = 1) const {
    std::vector<Tokens> data;
    for (int64_t i = 0; i < micro_batches; ++i) data.push_back(tokens(static_cast<uint32_t>(100 * number + i)));
    std::vector<Batch> batches;
    for (const Tokens& d : data) batches.push_back(d.batch());
    gpt2::AdamW adamw{.learning_rate = 1e-3f / static_cast<float>(number), .weight_decay = 0.1f * static_cast<float>(number)};
    adamw.clip = number % 2 == 0 ? 0.5f : 0.0f;
    t.enqueue_step({number, batches, adamw, graph});
    return t.finish_step();
  }
  static void expect_same(gpt2::Trainer& a, gpt2::Trainer& b) {
    for (const State which : {State::parameters, State::gradients, State::adam_m, State::adam_v})
      EXPECT_TRUE(same_bits(read_state(a, which), read_state(b, which))) << "state " << static_cast<int>(which);
  }
  const trainers::Kind kind_ = trainers::mixed_kind();
  gpt2::TrainerOptions options_ = trainers::small_options(kind_, 3, 65);
};

TEST_F(MixedStep, AGraphHasTheBitsOfTheLaunchesItWasCapturedFrom) {
  const auto graph = fresh();
  const auto direct = fresh();
  options_.variants = {{"step_launch", "stream"}};
  const auto stream = fresh();
  for (int64_t n = 1; n <= 6; ++n) {
    const gpt2::StepOutcome a = step(*graph, n);
    const gpt2::StepOutcome b = step(*direct, n, n % 3 != 0);  // leaves the graph and comes back
    const gpt2::StepOutcome c = step(*stream, n);
    EXPECT_EQ(a.loss, b.loss) << "step " << n;
    EXPECT_EQ(a.loss, c.loss) << "step " << n;
    EXPECT_EQ(a.grad_norm, c.grad_norm) << "step " << n;
  }
  expect_same(*graph, *direct);
  expect_same(*graph, *stream);
}

TEST_F(MixedStep, GraphsOfMicroBatchesHaveTheBitsOfDirectLaunches) {
  options_.micro_batches = 4;
  const auto graph = fresh();
  const auto direct = fresh();
  const int64_t micro_batches[] = {3, 1, 2, 4};
  for (int64_t n = 1; n <= 4; ++n) {
    const int64_t count = micro_batches[n - 1];
    EXPECT_EQ(step(*graph, n, true, count).loss, step(*direct, n, false, count).loss) << "step " << n;
  }
  expect_same(*graph, *direct);
}

TEST_F(MixedStep, WeightsWrittenFromOutsideReachTheNextForward) {
  const auto trainer = fresh();
  const Tokens data = tokens(1);
  const double before = trainer->evaluate(data.batch());
  step(*trainer, 1);
  EXPECT_NE(trainer->evaluate(data.batch()), before) << "the update reaches the bf16 weights";
  trainer->write(State::parameters, reference_test::lively_parameters(options_.model, 3));
  EXPECT_EQ(trainer->evaluate(data.batch()), before);
}

// A forward of the masters rounded to bf16 by hand must be the forward of the trainer: its weights are the rounded masters, no others.
TEST_F(MixedStep, AfterAnUpdateTheWeightsAreTheMastersRoundedToNearest) {
  const auto trainer = fresh();
  for (int64_t n = 1; n <= 3; ++n) step(*trainer, n);
  const Tokens data = tokens(9);
  const double loss = trainer->evaluate(data.batch());
  std::vector<float> masters = read_state(*trainer, State::parameters);
  for (float& x : masters) x = to_bf16(x);
  const auto other = kind_.make(options_);
  other->write(State::parameters, masters);
  EXPECT_EQ(other->evaluate(data.batch()), loss);
}

// Exactly the same where the recompute reads what the forward read: a bf16 stream, and the GELU of a rounded sum.
TEST_F(MixedStep, RecomputeOfLayernormsChangesNoBitAndOfGeluOnlyItsRounding) {
  const auto loss_and_gradients = [&](const char* recompute, const char* gelu) {
    options_.recompute = recompute;
    options_.variants = {{"gelu_forward", gelu}, {"residual_stream", "bf16"}};
    const auto trainer = fresh();
    const Tokens data = tokens(4);
    const double loss = trainer->forward_backward(data.batch());
    return std::pair(loss, read_state(*trainer, State::gradients));
  };
  const auto kept = loss_and_gradients("none", "kernel");
  for (const char* recompute : {"gelu", "gelu+ln"}) {
    const auto again = loss_and_gradients(recompute, "kernel");
    EXPECT_EQ(again.first, kept.first) << recompute;
    EXPECT_TRUE(same_bits(again.second, kept.second)) << recompute;
  }
  // The epilogue takes the GELU of the sum before it is rounded, the recompute of the rounded one.
  const auto epilogue = loss_and_gradients("gelu", "matmul_epilogue");
  EXPECT_LE(reference_test::relative_l2(std::span<const float>(epilogue.second), std::span<const float>(kept.second)), 1e-2);
}

// The masters, weights, moments and losses of fp32 masters, whatever the rounding, also after parameters were read, written and resumed.
TEST_F(MixedStep, SplitMastersHaveTheBitsOfMastersInFp32) {
  options_.micro_batches = 3;
  for (const char* rounding : {"nearest", "stochastic"}) {
    options_.weight_rounding = rounding;
    options_.variants = {{"masters", "fp32"}};
    const auto whole = fresh();
    options_.variants = {{"masters", "split"}};
    const auto split = fresh();
    expect_same(*split, *whole);
    for (int64_t n = 1; n <= 6; ++n) {
      SCOPED_TRACE(n);
      EXPECT_EQ(step(*split, n, n % 3 != 0, n == 2 ? 3 : 1).loss, step(*whole, n, true, n == 2 ? 3 : 1).loss) << rounding;
      if (n == 4) {
        for (const State which : {State::adam_v, State::parameters, State::adam_m}) split->write(which, read_state(*split, which));
      }
    }
    expect_same(*split, *whole);
    std::vector<float> weights(trainers::parameter_count(options_)), split_weights(weights.size());
    whole->read_weights(weights);
    split->read_weights(split_weights);
    EXPECT_TRUE(same_bits(split_weights, weights)) << rounding;
    // What is read of either form is a checkpoint of both.
    const auto resume = [&](const char* form, gpt2::Trainer& of) {
      options_.variants = {{"masters", form}};
      auto resumed = kind_.make(options_);
      for (const State which : {State::parameters, State::adam_m, State::adam_v}) resumed->write(which, read_state(of, which));
      return resumed;
    };
    const auto split_of_split = resume("split", *split), fp32_of_split = resume("fp32", *split), split_of_fp32 = resume("split", *whole);
    const double loss = step(*whole, 7).loss;
    for (gpt2::Trainer* resumed : {split_of_split.get(), fp32_of_split.get(), split_of_fp32.get()}) {
      EXPECT_EQ(step(*resumed, 7).loss, loss) << rounding;
      expect_same(*resumed, *whole);
    }
  }
}

// Parameters of a shape whose tensors do not begin at multiples of eight: no packs, and a byte of bits that two tensors share.
TEST_F(MixedStep, SplitMastersOfAnOddShapeHaveTheBitsOfMastersInFp32) {
  options_.model = {.max_seq_len = 7, .vocab_size = 61, .padded_vocab = 61, .layers = 1, .heads = 1, .channels = 9};
  options_.seq_len = 5;
  options_.variants = {{"masters", "fp32"}};
  const auto whole = fresh();
  options_.variants = {{"masters", "split"}};
  const auto split = fresh();
  for (int64_t n = 1; n <= 3; ++n) EXPECT_EQ(step(*split, n).loss, step(*whole, n).loss) << n;
  expect_same(*split, *whole);
}

// Moments of either form of masters and of gradients, in a graph and without: the same bits, so the draws depend on the element alone. What
// is read is a checkpoint; a run that is resumed from it, or whose moments were read and written on the way, goes on bit for bit.
TEST_F(MixedStep, NarrowMomentsDependOnNothingButTheStep) {
  for (const std::string form : {"split", "16_bits"})
    for (const bool odd : {false, true}) {
      SCOPED_TRACE(form + (odd ? ", a shape without packs" : ", a shape of packs"));
      options_ = trainers::small_options(kind_, 3, 65);
      if (odd) {
        options_.model = {.max_seq_len = 7, .vocab_size = 61, .padded_vocab = 61, .layers = 1, .heads = 1, .channels = 9};
        options_.seq_len = 5;
      }
      options_.variants = {{"moments", form}};
      const auto narrow = fresh();
      options_.variants = {{"moments", form}, {"masters", "fp32"}, {"step_launch", "stream"}};
      const auto direct = fresh();
      for (int64_t n = 1; n <= 4; ++n) {
        EXPECT_EQ(step(*narrow, n, n % 3 != 0).loss, step(*direct, n).loss) << n;
        if (n == 2)
          for (const State which : {State::adam_v, State::adam_m}) narrow->write(which, read_state(*narrow, which));
      }
      expect_same(*narrow, *direct);
      options_.variants = {{"moments", form}};
      const auto resumed = kind_.make(options_);
      for (const State which : {State::parameters, State::adam_m, State::adam_v}) resumed->write(which, read_state(*narrow, which));
      EXPECT_EQ(step(*resumed, 5).loss, step(*narrow, 5).loss);
      expect_same(*resumed, *narrow);
    }
}

// So many significant bits of what fp32 has: each moment one of its two neighbours after a step from nothing, and written ones the nearest.
TEST_F(MixedStep, NarrowMomentsAreThoseOfFp32RoundedOnce) {
  options_.variants = {{"moments", "fp32"}};
  const auto whole = fresh();
  const double loss = step(*whole, 1).loss;
  const auto bits_of = [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
  };
  // Bits that are cut off, of m and of v.
  for (const auto& [form, cut_off] : std::map<std::string, std::array<int, 2>>{{"split", {8, 8}}, {"16_bits", {16, 15}}}) {
    SCOPED_TRACE(form);
    options_.variants = {{"moments", form}};
    const auto narrow = fresh();
    EXPECT_EQ(step(*narrow, 1).loss, loss);
    for (const State which : {State::adam_m, State::adam_v}) {
      const uint32_t unit = uint32_t{1} << cut_off[which == State::adam_m ? 0 : 1], rest = unit - 1;
      const std::vector<float> want = read_state(*whole, which), got = read_state(*narrow, which);
      int64_t others = 0, up = 0, between = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        const uint32_t low = bits_of(want[i]) & ~rest, part = bits_of(want[i]) & rest, found = bits_of(got[i]);
        others += found != low && (part == 0 || found != low + unit);
        up += found != low;
        between += part != 0;
      }
      EXPECT_EQ(others, 0);
      EXPECT_GT(up, between * 2 / 5) << "about half of them go up";
      EXPECT_LT(up, between * 3 / 5);
      narrow->write(which, want);
      const std::vector<float> written = read_state(*narrow, which);
      int64_t wrong = 0;
      for (size_t i = 0; i < want.size(); ++i) wrong += bits_of(written[i]) != ((bits_of(want[i]) + unit / 2) & ~rest);
      EXPECT_EQ(wrong, 0);
    }
  }
}

// A gradient in bf16 is the product's sum rounded once: bf16 numbers, each next to the fp32 one; all other gradients keep their bits. What is
// read is what norm and update read.
TEST_F(MixedStep, Bf16WeightGradientsAreTheFp32OnesRoundedOnce) {
  const Tokens data = tokens(5);
  options_.variants = {{"weight_gradients", "fp32"}};
  const auto wide = fresh();
  options_.variants = {{"weight_gradients", "bf16"}, {"wte_gradient", "fp32"}};
  const auto narrow = fresh();
  EXPECT_EQ(narrow->forward_backward(data.batch()), wide->forward_backward(data.batch()));
  const std::vector<float> want = read_state(*wide, State::gradients), got = read_state(*narrow, State::gradients);
  const gpt2::TensorLayout layout = gpt2::tensor_layout(options_.model);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const auto span = [&](const std::vector<float>& v) {
      return std::vector<float>(v.begin() + layout[row.id].offset, v.begin() + layout[row.id].offset + layout[row.id].size);
    };
    const std::vector<float> x = span(want), y = span(got);
    if (row.name != "qkvw" && row.name != "attprojw" && row.name != "fcw" && row.name != "fcprojw") {
      EXPECT_TRUE(same_bits(y, x)) << row.name;
      continue;
    }
    double squares = 0;
    for (const float g : x) squares += static_cast<double>(g) * static_cast<double>(g);
    const double scale = std::sqrt(squares / static_cast<double>(x.size()));
    int64_t far = 0, wider = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      wider += to_bf16(y[i]) != y[i];
      // Half a step of bf16, and what two orders of an fp32 sum differ by.
      far +=
          !(std::abs(static_cast<double>(y[i]) - static_cast<double>(x[i])) <= 0x1p-8 * std::abs(static_cast<double>(x[i])) + 1e-4 * scale);
    }
    EXPECT_EQ(wider, 0) << row.name;
    EXPECT_EQ(far, 0) << row.name;
  }
}

// wte's is rounded after the product, and the rows of the batch's tokens once more, after the embedding's part was added; the rows of other
// tokens, and all other gradients, keep the bits that they have.
TEST_F(MixedStep, ABf16WteGradientIsTheFp32OneRoundedOnceOrTwice) {
  const Tokens data = tokens(5);
  options_.variants = {{"wte_gradient", "fp32"}};
  const auto wide = fresh();
  options_.variants = {{"wte_gradient", "bf16"}};
  const auto narrow = fresh();
  EXPECT_EQ(narrow->forward_backward(data.batch()), wide->forward_backward(data.batch()));
  const std::vector<float> want = read_state(*wide, State::gradients), got = read_state(*narrow, State::gradients);
  const gpt2::TensorLayout layout = gpt2::tensor_layout(options_.model);
  const gpt2::TensorSpan& wte = layout[gpt2::Tensor::wte];
  const int64_t C = options_.model.channels;
  std::vector<bool> in_batch(static_cast<size_t>(options_.model.padded_vocab));
  for (const int32_t token : data.batch().inputs) in_batch[static_cast<size_t>(token)] = true;
  double squares = 0;
  for (int64_t i = wte.offset; i < wte.offset + wte.size; ++i) squares += std::pow(static_cast<double>(want[static_cast<size_t>(i)]), 2);
  const double scale = std::sqrt(squares / static_cast<double>(wte.size));
  int64_t far = 0, wider = 0, others = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) - wte.offset;
    if (at < 0 || at >= wte.size) {
      others += !(got[i] == want[i]);
      continue;
    }
    wider += to_bf16(got[i]) != got[i];
    // The first of two roundings is of the product alone, which may be as large as any of the tensor.
    const double room = 0x1p-8 * std::abs(static_cast<double>(want[i])) + 1e-4 * scale;
    const double again = in_batch[static_cast<size_t>(at / C)] ? 0x1p-8 * (std::abs(static_cast<double>(want[i])) + 4 * scale) : 0;
    far += !(std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])) <= room + again);
  }
  EXPECT_EQ(others, 0);
  EXPECT_EQ(wider, 0);
  EXPECT_EQ(far, 0);
}

TEST_F(MixedStep, StepsWithBf16WeightGradientsAgreeHoweverTheyAreMade) {
  options_.variants = {{"weight_gradients", "bf16"}};
  const auto graph = fresh();
  options_.variants["step_launch"] = "stream";
  const auto direct = fresh();
  options_.variants = {{"weight_gradients", "bf16"}, {"masters", "split"}};
  const auto split = fresh();
  options_.variants = {{"weight_gradients", "bf16"}, {"grad_norm", "beside_backward"}};
  const auto beside = fresh();
  for (int64_t n = 1; n <= 6; ++n) {
    SCOPED_TRACE(n);
    const gpt2::StepOutcome a = step(*graph, n), b = step(*direct, n), c = step(*split, n), d = step(*beside, n);
    double squares = 0;
    for (const float g : read_state(*graph, State::gradients)) squares += static_cast<double>(g) * static_cast<double>(g);
    EXPECT_NEAR(a.grad_norm, std::sqrt(squares), 1e-9 * a.grad_norm);
    EXPECT_EQ(b.loss, a.loss);
    EXPECT_EQ(b.grad_norm, a.grad_norm);
    EXPECT_EQ(c.loss, a.loss);
    EXPECT_EQ(c.grad_norm, a.grad_norm);
    EXPECT_NEAR(d.grad_norm, a.grad_norm, 1e-6 * a.grad_norm);
  }
  expect_same(*direct, *graph);
  expect_same(*split, *graph);
}

// The default gives way where a trainer is made for more, and says so.
TEST_F(MixedStep, Bf16WeightGradientsRefuseASecondMicroBatch) {
  const auto trainer = fresh();
  EXPECT_FALSE(trainer->options().variants.contains("weight_gradients")) << "bf16 is the default";
  EXPECT_THROW(step(*trainer, 1, true, 2), stepscope::InputError);
  EXPECT_NO_THROW(step(*trainer, 1));
  options_.micro_batches = 2;
  const auto several = fresh();
  EXPECT_EQ(several->options().variants.at("weight_gradients"), "fp32");
  EXPECT_THAT(several->notices(), testing::Contains(testing::HasSubstr("weight_gradients=fp32 runs, not the default bf16")));
  EXPECT_NO_THROW(step(*several, 1, true, 2));
  options_.variants = {{"weight_gradients", "bf16"}};
  EXPECT_THROW(fresh(), stepscope::InputError);
}

// A run that accumulates goes on where one that did not was saved, and the other way round: gradients are in no checkpoint.
TEST_F(MixedStep, AStateThatEitherStorageOfGradientsLeavesIsTheSameToTheOther) {
  const auto narrow = fresh();
  step(*narrow, 1);
  options_.micro_batches = 2;
  const auto wide = kind_.make(options_);
  for (const State which : {State::parameters, State::adam_m, State::adam_v}) {
    wide->write(which, read_state(*narrow, which));
    EXPECT_TRUE(same_bits(read_state(*wide, which), read_state(*narrow, which)));
  }
  const Tokens data = tokens(6);
  EXPECT_EQ(wide->evaluate(data.batch()), narrow->evaluate(data.batch()));
}

// Sums in double differ by their order alone, so the norm as a double agrees to many digits; gradients do not change at all. With
// several micro-batches a norm that was summed before the last of them would be far off.
TEST_F(MixedStep, ANormBesideTheBackwardIsTheNorm) {
  options_.micro_batches = 3;
  const auto whole = fresh();
  options_.variants = {{"grad_norm", "beside_backward"}};
  const auto beside = fresh();
  options_.variants = {{"grad_norm", "beside_backward"}, {"step_launch", "stream"}};
  const auto direct = fresh();
  for (int64_t n = 1; n <= 6; ++n) {
    const int64_t micro_batches = n == 3 ? 3 : 1;
    const gpt2::StepOutcome a = step(*whole, n, true, micro_batches), b = step(*beside, n, n % 4 != 0, micro_batches),
                            c = step(*direct, n, true, micro_batches);
    EXPECT_NEAR(b.grad_norm, a.grad_norm, 1e-6 * a.grad_norm) << n;
    EXPECT_EQ(c.grad_norm, b.grad_norm) << n;
  }
  expect_same(*beside, *direct);
}

// A kernel that did not wait would read what is not written yet: sooner or later other bits.
TEST_F(MixedStep, ProgrammaticEdgesHaveTheBitsOfFullOnes) {
  for (const int64_t most : {1, 3}) {
    SCOPED_TRACE(most);
    options_.micro_batches = most;
    options_.variants = {{"graph_edges", "full"}};
    const auto full = fresh();
    options_.variants = {{"graph_edges", "programmatic"}};
    const auto programmatic = fresh();
    for (int64_t n = 1; n <= 20; ++n) {
      const gpt2::StepOutcome a = step(*full, n, true, n == 5 ? most : 1), b = step(*programmatic, n, true, n == 5 ? most : 1);
      EXPECT_EQ(b.loss, a.loss) << n;
      EXPECT_EQ(b.grad_norm, a.grad_norm) << n;
    }
    expect_same(*programmatic, *full);
  }
}

TEST_F(MixedStep, StochasticRoundingRepeatsAndResumesBitForBit) {
  options_.weight_rounding = "stochastic";
  const auto whole = fresh();
  const auto again = fresh();
  std::vector<double> losses;
  for (int64_t n = 1; n <= 6; ++n) {
    losses.push_back(step(*whole, n).loss);
    EXPECT_EQ(step(*again, n).loss, losses.back());
  }
  const auto first = fresh();
  for (int64_t n = 1; n <= 3; ++n) step(*first, n);
  const auto second = kind_.make(options_);
  for (const State which : {State::parameters, State::adam_m, State::adam_v}) second->write(which, read_state(*first, which));
  for (int64_t n = 4; n <= 6; ++n) EXPECT_EQ(step(*second, n).loss, losses[static_cast<size_t>(n - 1)]) << "step " << n;
  expect_same(*second, *whole);
}

TEST_F(MixedStep, StochasticRoundingIsNotRoundingToNearest) {
  const auto nearest = fresh();
  options_.weight_rounding = "stochastic";
  const auto stochastic = fresh();
  step(*nearest, 1);
  step(*stochastic, 1);
  const Tokens data = tokens(2);
  EXPECT_NE(nearest->evaluate(data.batch()), stochastic->evaluate(data.batch()));
}

TEST_F(MixedStep, AnFp32OrASplitResidualStreamIsNoWorseThanABf16One) {
  const Tokens data = tokens(11);
  auto model = reference_test::lively_model<double>(options_.model, options_.batch_size, options_.seq_len);
  model.forward_backward(data.batch());
  const auto error = [&](const char* storage) {
    options_.variants = {{"residual_stream", storage}, {"residual_gradient", storage}};
    const auto trainer = fresh();
    trainer->forward_backward(data.batch());
    const std::vector<float> gradients = read_state(*trainer, State::gradients);
    return reference_test::relative_l2(std::span<const float>(gradients), std::span<const double>(model.gradients()));
  };
  const double narrow = error("bf16");
  EXPECT_LE(error("fp32"), 1.05 * narrow);
  EXPECT_LE(error("split"), 1.05 * narrow);
  EXPECT_LE(narrow, 2e-2);
}

// The library keeps GELU's input in bf16, our own product GELU's gradient, and sums fcb's gradient before rounding: neither is further from
// the truth. 195 rows fill no tile.
TEST_F(MixedStep, OurOwnProductsWithGeluAreAsNearToTheTruthAsTheLibrarys) {
  if (gpt2::cuda::device_info().compute_capability != "9.0") GTEST_SKIP() << "wgmma needs compute capability 9.0";
  const Tokens data = tokens(11);
  auto model = reference_test::lively_model<double>(options_.model, options_.batch_size, options_.seq_len);
  model.forward_backward(data.batch());
  const auto fcb = gpt2::tensor_layout(options_.model)[gpt2::Tensor::fcb];
  const auto errors = [&](const std::map<std::string, std::string>& variants) {
    options_.variants = variants;
    const auto trainer = fresh();
    trainer->forward_backward(data.batch());
    const std::vector<float> got = read_state(*trainer, State::gradients);
    const std::span<const float> all(got);
    const std::span<const double> want(model.gradients());
    const auto offset = static_cast<size_t>(fcb.offset), size = static_cast<size_t>(fcb.per_layer * options_.model.layers);
    return std::pair(reference_test::relative_l2(all, want),
                     reference_test::relative_l2(all.subspan(offset, size), want.subspan(offset, size)));
  };
  const auto library = errors({{"gelu_forward", "matmul_epilogue"}, {"gelu_backward", "matmul_epilogue"}});
  const auto own = errors({{"gelu_forward", "hopper"}, {"gelu_backward", "hopper"}});
  EXPECT_LE(own.first, 1.1 * library.first);
  EXPECT_LE(own.second, 1.2 * library.second);
}

TEST_F(MixedStep, MemoryTakenIsWhatWasPlanned) {
  options_.model = gpt2::model_from_name("d12");
  options_.batch_size = 4;
  options_.seq_len = 1024;
  const auto trainer = kind_.make(options_);
  int64_t planned = 0;
  for (const gpt2::MemoryItem& item : trainer->memory()) planned += item.bytes;
  ASSERT_TRUE(trainer->memory_used_bytes());
  // Allocations are rounded up to 2 MiB; libraries keep some of their own.
  EXPECT_GE(*trainer->memory_used_bytes(), planned);
  EXPECT_LE(static_cast<double>(*trainer->memory_used_bytes()), 1.1 * static_cast<double>(planned));
}

}  // namespace
}  // namespace mixed
