// The cost model of more GPUs against a step that passes tick by tick, over steps, sweeps and exchanges made at random.
#include "profiler/ranks/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace {

using namespace profiler;
using Kind = StepPlace::Kind;

constexpr double kTick_ns = 250;
// Each of some fifty pieces and transfers may end up to a tick late.
constexpr double kAllowed_ns = 60 * kTick_ns;

struct Case {
  StepParts parts;
  LinkCeilings links;
  ExchangePlan plan;
  int64_t ranks = 2;
};

Case random_case(uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(most + 1)); };
  const auto part = [&] { return static_cast<double>(upto(1'000'000)) * 1e-6; };
  Case c;
  StepParts& p = c.parts;
  const int64_t layers = 1 + upto(5);
  p.embed_ns = 2e5 * part(), p.loss_ns = 5e5 * part(), p.head_ns = 5e5 * part(), p.embed_backward_ns = 3e5 * part();
  p.norm_ns = 1e5 * part(), p.update_ns = 6e5 * part(), p.rest_ns = 1e5 * part();
  for (int64_t l = 0; l < layers; ++l) p.forward_layer_ns.push_back(6e5 * part()), p.backward_layer_ns.push_back(1e6 * part());
  p.micro_batches = static_cast<double>(1 + upto(3));
  p.rows = 2048;
  p.tokens = p.rows * p.micro_batches;
  p.product_share_pct = 100 * part();
  c.ranks = 2 + 2 * upto(1);

  std::vector<GradientBucket> buckets;
  for (int64_t l = layers - 1; l >= 0; --l) buckets.push_back({1'000'000 + upto(9'000'000), upto(1) ? "bf16" : "fp32", l});
  buckets.push_back({2'000'000 + upto(20'000'000), "fp32", -1});
  ExchangeOptions o;
  const char* const kWays[] = {"zero1_ahead", "zero1", "all_reduce_overlapped", "all_reduce"};
  o.communication = kWays[upto(3)];
  o.gathered_rows = o.communication == "zero1_ahead" && upto(1);
  o.ranks = c.ranks;
  o.tokens = 2048;
  o.row_bytes = 3072;
  c.plan = exchange_plan(buckets, o);
  for (const char* kind : {"all_reduce", "reduce_scatter", "all_gather"})
    for (const char* type : {"fp32", "bf16"}) {
      c.links.fits.push_back({"nccl", kind, type, c.ranks, 0, {}, {2e4 * part(), 5e10 + 3e11 * part()}, 0});
      // Beside the products of one micro-batch, of several, and beside memory's work.
      for (const int64_t rows : {2048, 8192, 0}) {
        const double alone = 1e5, beside = alone * (1 + part());
        if (upto(3))
          c.links.beside.push_back(
              {"nccl", kind, type, c.ranks, 8'000'000, rows ? "product" : "memory", rows, alone, beside, beside * 0.5 * part()});
      }
    }
  return c;
}

// Pieces of work of one rank, in the order of docs/scaling.md: the forward pass of the first micro-batch, all that lies between, the backward
// pass of the last, the update.
struct Piece {
  StepPlace place;
  double left_ns = 0;
};
std::vector<Piece> pieces_of(const StepParts& p, const ExchangePlan& plan) {
  const double n = p.micro_batches;
  const auto layers = static_cast<int64_t>(p.forward_layer_ns.size());
  std::vector<Piece> list = {{{Kind::embed}, p.embed_ns / n}};
  double between = (n - 1) / n * (p.embed_ns + p.loss_ns + p.head_ns + p.embed_backward_ns);
  for (int64_t l = 0; l < layers; ++l) {
    const auto at = static_cast<size_t>(l);
    list.push_back({{Kind::forward, l}, p.forward_layer_ns[at] / n});
    between += (n - 1) / n * (p.forward_layer_ns[at] + p.backward_layer_ns[at]);
  }
  list.push_back({{Kind::between}, between});
  list.push_back({{Kind::loss}, p.loss_ns / n});
  list.push_back({{Kind::head}, p.head_ns / n});
  for (int64_t l = layers - 1; l >= 0; --l) list.push_back({{Kind::backward, l}, p.backward_layer_ns[static_cast<size_t>(l)] / n});
  list.push_back({{Kind::embed_backward}, p.embed_backward_ns / n * plan.embed_backward_share});
  list.push_back({{Kind::norm}, p.norm_ns * plan.update_share});
  for (size_t u = 0; u < plan.update_pieces.size(); ++u)
    list.push_back({{Kind::update, static_cast<int64_t>(u)}, p.update_ns * plan.update_share * plan.update_pieces[u]});
  list.push_back({{Kind::end}, 0});
  return list;
}

ScaledStep tick_by_tick(const Case& c) {
  std::vector<Piece> pieces = pieces_of(c.parts, c.plan);
  ScaledStep s;
  s.work_ns = c.parts.rest_ns;
  for (const Piece& p : pieces) s.work_ns += p.left_ns;
  struct Transfer {
    size_t from = 0, until = 0;  // may run beside the pieces from `from` on; piece `until` waits for it
    double left_ns = 0;
    BesideSpeeds speeds;
    bool weights = false;
  };
  std::vector<Transfer> transfers;
  const auto position = [&](const StepPlace& place) {
    return static_cast<size_t>(std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.place == place; }) -
                               pieces.begin());
  };
  for (const PlannedCollective& k : c.plan.collectives) {
    Transfer t;
    t.from = k.ready.kind == Kind::begin ? 0 : position(k.ready) + 1;
    t.until = position(k.needed);
    t.left_ns = collective_ns(c.links, {}, "nccl", k.kind, k.type, c.ranks, k.bytes);
    const double products = k.ready.kind == Kind::update ? 0 : c.parts.product_share_pct / 100;
    const auto rows_of_one = static_cast<int64_t>(c.parts.tokens / c.parts.micro_batches);
    t.speeds = speeds_beside(c.links, "nccl", k.kind, k.type, k.bytes, rows_of_one, products).value_or(BesideSpeeds{});
    t.weights = k.op == "gather_weights";
    s.communication_ns += t.left_ns;
    transfers.push_back(t);
  }
  size_t next = 0;
  for (size_t i = 0; i < pieces.size();) {
    const bool waits = std::any_of(transfers.begin() + static_cast<std::ptrdiff_t>(next), transfers.end(),
                                   [&](const Transfer& t) { return t.until <= i; });
    Transfer* t = next < transfers.size() && (waits || transfers[next].from <= i) ? &transfers[next] : nullptr;
    if (!waits && pieces[i].left_ns <= 0) {
      ++i;
      continue;
    }
    if (waits) {
      t->left_ns -= kTick_ns;
      (t->weights ? s.head_ns : pieces[i].place.kind == Kind::update ? s.norm_ns : s.tail_ns) += kTick_ns;
    } else if (t) {
      t->left_ns -= kTick_ns * t->speeds.collective;
      pieces[i].left_ns -= kTick_ns * t->speeds.work;
      s.hidden_ns += kTick_ns;
      s.inflation_ns += kTick_ns * (1 - t->speeds.work);
    } else {
      pieces[i].left_ns -= kTick_ns;
    }
    if (t && t->left_ns <= 0) ++next;
  }
  s.time_ns = s.work_ns + s.tail_ns + s.norm_ns + s.head_ns + s.inflation_ns;
  s.tokens_per_s = static_cast<double>(c.ranks) * c.parts.tokens / s.time_ns * 1e9;
  return s;
}

TEST(CostOracle, AStepOfManyGpusIsWhatPassesTickByTick) {
  int64_t waited = 0, slowed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Case c = random_case(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ScaledStep expected = tick_by_tick(c), found = scaled_step(c.parts, c.plan, c.links, {}, {}, c.ranks);
    EXPECT_NEAR(found.work_ns, expected.work_ns, 1);
    EXPECT_NEAR(found.communication_ns, expected.communication_ns, 1);
    EXPECT_NEAR(found.hidden_ns, expected.hidden_ns, kAllowed_ns);
    EXPECT_NEAR(found.inflation_ns, expected.inflation_ns, kAllowed_ns);
    EXPECT_NEAR(found.tail_ns, expected.tail_ns, kAllowed_ns);
    EXPECT_NEAR(found.head_ns, expected.head_ns, kAllowed_ns);
    EXPECT_NEAR(found.norm_ns, expected.norm_ns, kAllowed_ns);
    EXPECT_NEAR(found.time_ns, expected.time_ns, kAllowed_ns);
    EXPECT_NEAR(found.tokens_per_s, expected.tokens_per_s, expected.tokens_per_s * kAllowed_ns / expected.time_ns);
    waited += expected.tail_ns > 10 * kAllowed_ns || expected.head_ns > 10 * kAllowed_ns;
    slowed += expected.inflation_ns > 10 * kAllowed_ns;
    if (HasFailure()) return;
  }
  EXPECT_GT(waited, 10);
  EXPECT_GT(slowed, 10);
}

}  // namespace
