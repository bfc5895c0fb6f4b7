// Whether right kernels pass on the inputs that are chosen to hurt: plain fp32 loops, and loops that round as
// the mixed trainer's kernels do, over several seeds, under the limits of the cases. A budget that these
// reach is too tight; one that they use a thousandth of is too wide, and the tests that plant errors say so.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "experiments/gate/op_case.h"
#include "experiments/gate/op_compare.h"

namespace gate {
namespace {

constexpr uint64_t kSeeds = 3;

std::vector<float> floats(const OpTensor& t) {
  std::vector<float> out(static_cast<size_t>(t.count()));
  for (int64_t i = 0; i < t.count(); ++i) out[static_cast<size_t>(i)] = static_cast<float>(view(t.content, t.element)[i]);
  return out;
}
const OpTensor& tensor(const OpCase& c, std::string_view name) {
  for (const OpTensor& t : c.tensors)
    if (t.name == name) return t;
  throw std::logic_error("no such tensor");
}
// Largest share of its budget that a measure uses, when `got` is stored as the tensor is.
double share(const OpTrainer& trainer, const OpCase& c, std::string_view name, const std::vector<float>& got) {
  const OpTensor& t = tensor(c, name);
  Memory stored(Space::host, t.byte_count());
  for (int64_t i = 0; i < t.count(); ++i) store_value(stored.data(), t.element, i, static_cast<double>(got[static_cast<size_t>(i)]));
  const double floor = c.least_budget(trainer.rates().front());
  const Tolerance limit = t.rounding ? rounding_limit(t.rounding) : op_limit(floor, nullptr);
  const CheckResult r = from_metrics("", "", compare(Space::host, view(stored, t.element), view(t.want), t.rows, t.columns), limit);
  double most = 0;
  for (const Measure& m : r.measures) most = std::isnan(m.error) ? 1e9 : std::max(most, m.error / m.budget);
  return most;
}
void each(const OpTrainer& trainer, const OpSizes& sizes, const std::string& op, const UseCase& use) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) for_each_case(trainer, sizes, {.space = Space::host, .seed = seed, .only = op}, use);
}

float as_is(float x) { return x; }
float as_bf16(float x) { return std::bit_cast<float>(static_cast<uint32_t>(bf16_bits(x)) << 16); }

struct Attention {
  std::vector<float> out, lse, dqkv;
};
// In fp32; what the mixed trainer rounds on the way into a product goes through `round`. channels: of queries and keys that a score takes, more
// than a head has for a kernel that does not ask where it ends.
Attention attend(const OpCase& c, const OpSizes::Attention& z, float (*round)(float), bool backward, int64_t channels = 0) {
  const int64_t T = z.T, HS = z.HS, C = z.NH * HS;
  const std::vector<float> qkv = floats(tensor(c, "qkv"));
  const float scale = 1 / std::sqrt(static_cast<float>(HS));
  Attention a;
  a.out.resize(static_cast<size_t>(z.B * T * C));
  a.lse.resize(static_cast<size_t>(z.B * z.NH * T));
  a.dqkv.resize(qkv.size());
  const std::vector<float> dout = backward ? floats(tensor(c, "dout")) : a.out, out = backward ? floats(tensor(c, "out")) : a.out,
                           lse = backward ? floats(tensor(c, "lse")) : a.lse;
  std::vector<float> s(static_cast<size_t>(T));
  const auto at = [&](int64_t b, int64_t t, int64_t part, int64_t h) {
    return static_cast<size_t>((b * T + t) * 3 * C + part * C + h * HS);
  };
  for (int64_t b = 0; b < z.B; ++b)
    for (int64_t h = 0; h < z.NH; ++h)
      for (int64_t t = 0; t < T; ++t) {
        const auto row = static_cast<size_t>((b * z.NH + h) * T + t), o = static_cast<size_t>((b * T + t) * C + h * HS);
        const auto n = static_cast<size_t>(HS);
        float largest = -1e30f, sum = 0, row_dot = 0;
        for (int64_t past = 0; past <= t; ++past) {
          float dot = 0;
          for (size_t i = 0; i < (channels > 0 ? static_cast<size_t>(channels) : n); ++i)
            dot += qkv[at(b, t, 0, h) + i] * qkv[at(b, past, 1, h) + i];
          s[static_cast<size_t>(past)] = dot * scale;
          largest = std::max(largest, dot * scale);
        }
        for (int64_t past = 0; past <= t; ++past) sum += std::exp(s[static_cast<size_t>(past)] - largest);
        a.lse[row] = largest + std::log(sum);
        for (size_t i = 0; i < n; ++i) row_dot += dout[o + i] * out[o + i];
        for (int64_t past = 0; past <= t; ++past) {
          const float p = std::exp(s[static_cast<size_t>(past)] - (backward ? lse[row] : a.lse[row]));
          if (!backward) {
            for (size_t i = 0; i < n; ++i) a.out[o + i] += round(p) * qkv[at(b, past, 2, h) + i];
            continue;
          }
          float dp = 0;
          for (size_t i = 0; i < n; ++i) dp += dout[o + i] * qkv[at(b, past, 2, h) + i];
          const float ds = round(p * (dp - row_dot) * scale);
          for (size_t i = 0; i < n; ++i) {
            a.dqkv[at(b, past, 2, h) + i] += round(p) * dout[o + i];
            a.dqkv[at(b, t, 0, h) + i] += ds * qkv[at(b, past, 1, h) + i];
            a.dqkv[at(b, past, 1, h) + i] += ds * qkv[at(b, t, 0, h) + i];
          }
        }
      }
  return a;
}

TEST(OpBudgets, LeaveRoomForAttentionWithScoresFarFrom0) {
  OpSizes z;
  z.attentions = {{1, 130, 5, 64, true, false},       {1, 301, 6, 64, true, false}, {2, 257, 3, 64, false, false},
                  {1, 1301, 1, 16, false, false},     {1, 130, 5, 80, true, false}, {2, 67, 3, 96, false, false},
                  {1, 131, 2, 64, false, false, true}};
  for (const OpTrainer* trainer : {&fp32_ops(), &mixed_ops()}) {
    const auto round = trainer->storage().one_way_out() ? as_is : as_bf16;
    size_t i = 0;
    const auto next = [&]() -> const OpSizes::Attention& { return z.attentions[i++ % z.attentions.size()]; };
    const auto next_with_backward = [&]() -> const OpSizes::Attention& {
      const OpSizes::Attention& of = next();
      return of.low ? next() : of;
    };
    each(*trainer, z, "attention_forward", [&](const OpCase& c) {
      const Attention a = attend(c, next(), round, false);
      EXPECT_LT(share(*trainer, c, "out", a.out), 0.8) << trainer->name() << " " << c.shape;
      EXPECT_LT(share(*trainer, c, "lse", a.lse), 0.8) << trainer->name() << " " << c.shape;
    });
    each(*trainer, z, "attention_backward", [&](const OpCase& c) {
      const Attention a = attend(c, next_with_backward(), round, true);
      EXPECT_LT(share(*trainer, c, "dqkv", a.dqkv), 0.8) << trainer->name() << " " << c.shape;
    });
  }
}

// The lean of attention whose rounding of p and ds on their way into products is `round`, with results stored as the case has them.
CheckResult lean_of_attention(const OpTrainer& trainer, const OpCase& c, const OpSizes::Attention& z, float (*round)(float)) {
  const bool backward = c.op == "attention_backward";
  const OpTensor& t = c.tensors.front();
  const Attention a = attend(c, z, round, backward);
  const std::vector<float>& values = backward ? a.dqkv : a.out;
  Memory got(Space::host, t.byte_count());
  for (int64_t i = 0; i < t.count(); ++i) store_value(got.data(), t.element, i, static_cast<double>(values[static_cast<size_t>(i)]));
  return check_lean(c, t, view(got, t.element), "flash", trainer.rates().back(), c.op + "/flash", c.shape).value();
}

// Probabilities that are cut off to bf16, or to TF32 by the hardware, stay within every budget by norm.
TEST(OpLean, OfAttentionIsThatOfItsProbabilities) {
  OpSizes z;
  z.attentions = {{2, 129, 3, 64, false, false}, {3, 65, 5, 16, false, false}, {1, 65, 20, 16, false, false}};
  const auto to_11_bits = [](float x) { return static_cast<float>(nearest(static_cast<double>(x), kTf32Bits)); };
  const auto cut_to_11_bits = [](float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~0x1fffu); };
  const auto cut_to_8_bits = [](float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~0xffffu); };
  for (const OpTrainer* trainer : {&fp32_ops(), &mixed_ops()}) {
    const bool tf32 = trainer == &fp32_ops();
    for (const char* op : {"attention_forward", "attention_backward"}) {
      size_t i = 0;
      each(*trainer, z, op, [&](const OpCase& c) {
        const OpSizes::Attention& shape = z.attentions[i++ % z.attentions.size()];
        float (*const right)(float) = tf32 ? +to_11_bits : as_bf16;
        float (*const wrong)(float) = tf32 ? +cut_to_11_bits : +cut_to_8_bits;
        const CheckResult rounded = lean_of_attention(*trainer, c, shape, right), cut = lean_of_attention(*trainer, c, shape, wrong);
        EXPECT_LT(rounded.error, rounded.budget / 2) << trainer->name() << " " << c.op << " " << c.shape;
        EXPECT_FALSE(cut.passed) << trainer->name() << " " << c.op << " " << c.shape << " " << cut.error;
        EXPECT_EQ(cut.name, std::string(op) + "/flash lean");
      });
    }
  }
}

// One seed in twenty missed the budget while a column of the keys' gradient was a multiple of one sum, which can be near zero by chance.
TEST(OpBudgets, LeaveRoomForScoresFarFrom0WithAnySeed) {
  for (const int64_t channels : {64, 80}) {
    OpSizes z;
    z.attentions = {{1, 130, 5, channels, true, false}};
    for (uint64_t seed = 100; seed < (channels == 64 ? 180 : 140); ++seed)
      for_each_case(mixed_ops(), z, {.space = Space::host, .seed = seed, .only = "attention_backward"}, [&](const OpCase& c) {
        EXPECT_LT(share(mixed_ops(), c, "dqkv", attend(c, z.attentions[0], as_bf16, true).dqkv), 0.9) << seed << " " << c.shape;
      });
  }
}

// Heads of more than 64 channels fill tiles of 128, the next head's channels the rest of them.
TEST(OpBudgets, DoNotHideChannelsOfTheNextHead) {
  OpSizes z;
  z.attentions = {{2, 67, 3, 96, false, false}, {1, 130, 2, 80, false, false}};
  size_t i = 0;
  each(fp32_ops(), z, "attention_forward", [&](const OpCase& c) {
    const OpSizes::Attention& shape = z.attentions[i++ % 2];
    EXPECT_GT(share(fp32_ops(), c, "out", attend(c, shape, as_is, false, 128).out), 100) << c.shape;
    EXPECT_LT(share(fp32_ops(), c, "out", attend(c, shape, as_is, false).out), 0.8) << c.shape;
  });
  each(fp32_ops(), z, "attention_backward", [&](const OpCase& c) {
    EXPECT_GT(share(fp32_ops(), c, "dqkv", attend(c, z.attentions[i++ % 2], as_is, true, 128).dqkv), 100) << c.shape;
  });
}

// Sums of what is rounded, as a kernel of its own reads it.
std::vector<float> sums_of_rounded(const OpCase& c, const OpSizes::Attention& shape) {
  const OpTensor& dbias = tensor(c, "dbias");
  std::vector<float> sums(static_cast<size_t>(dbias.count()));
  if (dbias.role == Role::update) sums = floats(dbias);
  const std::vector<float> dqkv = attend(c, shape, as_bf16, true).dqkv;
  for (size_t at = 0; at < dqkv.size(); ++at) sums[at % sums.size()] += as_bf16(dqkv[at]);
  return sums;
}

TEST(OpBudgets, LeaveRoomForTheBiasGradientOfRoundedAttention) {
  OpSizes z;
  z.attentions = {{1, 63, 2, 64, false, false}, {2, 257, 3, 64, false, false}, {1, 601, 1, 16, false, false}};
  size_t i = 0;
  each(mixed_ops(), z, "attention_bias_gradient", [&](const OpCase& c) {
    const OpSizes::Attention& shape = z.attentions[i++ / 2 % z.attentions.size()];  // written, and added to
    std::vector<float> sums = sums_of_rounded(c, shape);
    EXPECT_LT(share(mixed_ops(), c, "dbias", sums), 0.8) << c.shape;
    // With bias_gradient=softmax_identities: k's is zero, whatever out was rounded to; v's is made of nothing that is rounded.
    const std::vector<float> behind = floats(tensor(c, "dbias behind")), weight = floats(tensor(c, "weight behind"));
    const size_t C = behind.size();
    for (size_t k = 0; k < C; ++k) {
      double of_values = 0;
      for (size_t out = 0; out < C; ++out) of_values += static_cast<double>(behind[out]) * static_cast<double>(weight[out * C + k]);
      sums[C + k] = 0;
      sums[2 * C + k] = static_cast<float>(of_values);
    }
    EXPECT_LT(share(mixed_ops(), c, "dbias", sums), 0.8) << c.shape;
  });
  EXPECT_EQ(i, kSeeds * 2 * z.attentions.size());
}

// Seven seeds in a thousand missed a budget that was the same for all inputs: 33 rows can nearly cancel, and their roundings do not.
TEST(OpBudgets, LeaveRoomForTheBiasGradientOfFewRowsWithAnySeed) {
  OpSizes z;
  z.attentions = {{1, 33, 3, 20, false, false}};
  for (uint64_t seed = 100; seed < 500; ++seed)
    for_each_case(mixed_ops(), z, {.space = Space::host, .seed = seed, .only = "attention_bias_gradient"}, [&](const OpCase& c) {
      if (tensor(c, "dbias").role == Role::update) return;
      EXPECT_LT(share(mixed_ops(), c, "dbias", sums_of_rounded(c, z.attentions[0])), 0.9) << seed;
    });
}

TEST(OpBudgets, LeaveRoomForRowsWhoseMeanIsFarAboveTheirDeviation) {
  OpSizes z;
  z.norms = {{63, 768, OpSizes::Norm::far_means},
             {70, 30, OpSizes::Norm::far_means},
             {189, 768, OpSizes::Norm::ordinary},
             {70, 770, OpSizes::Norm::ordinary},
             {70, 2560, OpSizes::Norm::ordinary}};
  for (const OpTrainer* trainer : {&fp32_ops(), &mixed_ops()})
    each(*trainer, z, "layernorm_forward", [&](const OpCase& c) {
      if (c.shape.find("no statistics") != std::string::npos || c.shape.starts_with("sum and layernorm")) return;
      const OpTensor& inp = tensor(c, "inp");
      const std::vector<float> x = floats(inp), w = floats(tensor(c, "weight")), b = floats(tensor(c, "bias"));
      const auto C = static_cast<size_t>(inp.columns);
      std::vector<float> out(x.size()), mean, rstd;
      for (size_t r = 0; r < x.size() / C; ++r) {
        // In 32 lanes, as a warp does it; the lanes then one after the other.
        float lanes[2][32] = {};
        float sums[2] = {};
        for (size_t i = 0; i < C; ++i) lanes[0][i % 32] += x[r * C + i];
        for (float lane : lanes[0]) sums[0] += lane;
        const float m = sums[0] / static_cast<float>(C);
        for (size_t i = 0; i < C; ++i) lanes[1][i % 32] += (x[r * C + i] - m) * (x[r * C + i] - m);
        for (float lane : lanes[1]) sums[1] += lane;
        const float rs = 1 / std::sqrt(sums[1] / static_cast<float>(C) + 1e-5f);
        mean.push_back(m);
        rstd.push_back(rs);
        for (size_t i = 0; i < C; ++i) out[r * C + i] = (x[r * C + i] - m) * rs * w[i] + b[i];
      }
      EXPECT_LT(share(*trainer, c, "out", out), 0.8) << trainer->name() << " " << c.shape;
      EXPECT_LT(share(*trainer, c, "mean", mean), 0.8) << trainer->name() << " " << c.shape;
      EXPECT_LT(share(*trainer, c, "rstd", rstd), 0.8) << trainer->name() << " " << c.shape;
    });
}

// The formula E[x^2] - E[x]^2 is what these rows are for.
TEST(OpBudgets, DoNotHideAVarianceThatCancels) {
  OpSizes z;
  z.norms = {{63, 768, OpSizes::Norm::far_means}};
  each(fp32_ops(), z, "layernorm_forward", [&](const OpCase& c) {
    const std::vector<float> x = floats(tensor(c, "inp"));
    std::vector<float> rstd;
    for (size_t r = 0; r < 63; ++r) {
      float sum = 0, squares = 0;
      for (size_t i = 0; i < 768; ++i) sum += x[r * 768 + i], squares += x[r * 768 + i] * x[r * 768 + i];
      rstd.push_back(1 / std::sqrt(squares / 768 - sum / 768 * (sum / 768) + 1e-5f));
    }
    EXPECT_GT(share(fp32_ops(), c, "rstd", rstd), 10);
  });
}

TEST(OpBudgets, LeaveRoomForLogitsThatAreLowHighEqualAndWide) {
  OpSizes z;
  z.classifiers = {{40, 1153, 1280, true}, {10, 50257, 50304, true}, {10, 50257, 50304, false}};
  for (const OpTrainer* trainer : {&fp32_ops(), &mixed_ops()})
    each(*trainer, z, "classifier", [&](const OpCase& c) {
      if (c.shape.find("loss only") != std::string::npos) return;
      const OpTensor& t = tensor(c, "dlogits");
      const auto Vp = static_cast<size_t>(t.columns), V = Vp == 1280 ? size_t{1153} : size_t{50257};
      std::vector<float> x = floats(t), losses;
      const View targets = view(tensor(c, "targets").content, Element::i32);
      const auto rows = static_cast<size_t>(t.rows);
      const float scale = static_cast<float>(1.0 / static_cast<double>(2 * rows));
      for (size_t r = 0; r < rows; ++r) {
        float* row = &x[r * Vp];
        float largest = -1e30f, sum = 0, lanes[256] = {};
        for (size_t v = 0; v < V; ++v) largest = std::max(largest, row[v]);
        for (size_t v = 0; v < V; ++v) lanes[v % 256] += std::exp(row[v] - largest);
        for (float lane : lanes) sum += lane;
        const auto target = static_cast<size_t>(targets[static_cast<int64_t>(r)]);
        losses.push_back(std::log(sum) + largest - row[target]);
        for (size_t v = 0; v < Vp; ++v)
          row[v] = v < V ? (std::exp(row[v] - largest) * (1 / sum) - (v == target ? 1.0f : 0.0f)) * scale : 0.0f;
      }
      // Of a column that one number makes nearly all of, a rounding to bf16 may cost all that it can cost.
      EXPECT_LT(share(*trainer, c, "dlogits", x), trainer->storage().one_way_out() ? 0.8 : 1.0) << trainer->name() << " " << c.shape;
      EXPECT_LT(share(*trainer, c, "losses", losses), 0.8) << trainer->name() << " " << c.shape;
    });
}

// In order and in one sum, which loses more than the chunks and blocks of a kernel do.
TEST(OpBudgets, LeaveRoomForThousandsOfRowsOfOneToken) {
  OpSizes z;
  z.ways = OpSizes::Ways::plain;
  z.embeddings = {{17, 965, 32, 509, 512, 1024, TokenKind::one}, {17, 965, 32, 50257, 50304, 1024, TokenKind::skewed}};
  each(fp32_ops(), z, "embedding_backward", [&](const OpCase& c) {
    std::vector<float> dwte = floats(tensor(c, "dwte"));
    const std::vector<float> dout = floats(tensor(c, "dout"));
    const View tokens = view(tensor(c, "tokens").content, Element::i32);
    const auto n = static_cast<int64_t>(dout.size()) / 32;
    // Chunks of 32 rows, then the chunks.
    std::vector<float> part(dwte.size());
    for (int64_t first = 0; first < n; first += 32) {
      for (size_t i = 0; i < 32; ++i) {
        std::map<size_t, float> sums;
        for (int64_t r = first; r < std::min(first + 32, n); ++r)
          sums[static_cast<size_t>(tokens[r])] += dout[static_cast<size_t>(r) * 32 + i];
        for (const auto& [token, sum] : sums) part[token * 32 + i] += sum;
      }
    }
    for (size_t i = 0; i < dwte.size(); ++i) dwte[i] += part[i];
    EXPECT_LT(share(fp32_ops(), c, "dwte", dwte), 0.8) << c.shape;
  });
}

// What the hurt rows of the head are for: one logit far above its target's and yet far below 0, and padded rows that would be larger.
TEST(OpInputs, AHeadThatHurtsHasALowRowThatOverflowsAndPaddedRowsThatWouldBeLarger) {
  OpSizes z;
  z.heads = {{40, 768, 1153, 1280, true}, {9, 768, 5021, 5056, true}};
  size_t i = 0;
  each(mixed_ops(), z, "lm_head", [&](const OpCase& c) {
    const auto& head = z.heads[i++ / 2 % 2];
    const OpTensor &x = tensor(c, "dx"), &w = tensor(c, "weight");
    const View xs = view(x.content, x.element), ws = view(w.content, w.element), targets = view(tensor(c, "targets").content, Element::i32);
    const auto logit = [&](int64_t row, int64_t token) {
      double sum = 0;
      for (int64_t k = 0; k < head.C; ++k) sum += xs[row * head.C + k] * ws[token * head.C + k];
      return sum;
    };
    double largest = -INFINITY;
    for (int64_t token = 0; token < head.V; ++token) largest = std::max(largest, logit(4, token));
    const double own = logit(4, static_cast<int64_t>(targets[4]));
    EXPECT_LT(largest, -88) << c.shape << ": the exponential of what is taken from 0 is 0";
    EXPECT_GT(largest - own, 40) << c.shape << ": beyond hopper::kLargestExponentials";
    for (int64_t token = head.V; token < head.Vp; ++token) ASSERT_GT(logit(4, token), 0);
  });
}

// A product whose terms are added one after the other in fp32, the worst order that a library could choose.
TEST(OpBudgets, LeaveRoomForSumsOfManyTermsInFp32) {
  OpSizes z;
  z.ways = OpSizes::Ways::plain;
  z.products = {{"", 16421, 24, 16, true}, {"", 9, 4096, 16, true}};
  each(fp32_ops(), z, "linear_backward", [&](const OpCase& c) {
    const OpTensor &dout_t = tensor(c, "dout"), &inp_t = tensor(c, "inp");
    const std::vector<float> dout = floats(dout_t), inp = floats(inp_t);
    const auto rows = static_cast<size_t>(inp_t.rows), in = static_cast<size_t>(inp_t.columns), out = static_cast<size_t>(dout_t.columns);
    std::vector<float> dweight(out * in);
    for (size_t r = 0; r < rows; ++r)
      for (size_t o = 0; o < out; ++o)
        for (size_t i = 0; i < in; ++i) dweight[o * in + i] += dout[r * out + o] * inp[r * in + i];
    EXPECT_LT(share(fp32_ops(), c, "dweight", dweight), 0.8) << c.shape;
  });
}

}  // namespace
}  // namespace gate
