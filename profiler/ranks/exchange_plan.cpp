#include "profiler/ranks/exchange_plan.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <span>
#include <string_view>

#include "base/errors.h"

namespace profiler {
namespace {

using PlaceKind = StepPlace::Kind;
using stepscope::InputError;

constexpr std::array<std::string_view, 4> kCommunications{"zero1_ahead", "zero1", "all_reduce_overlapped", "all_reduce"};
constexpr int64_t kBlockElements = 2048;  // of whose sums the gradient norm is made (bucket_plan.h)

class Planner {
 public:
  Planner(const std::vector<GradientBucket>& buckets, const ExchangeOptions& options) : buckets_(buckets), o_(options) {
    divided_ = o_.communication == "zero1" || o_.communication == "zero1_ahead";
    if (divided_) plan_.update_share = 1.0 / static_cast<double>(o_.ranks);
    if (o_.gathered_rows) plan_.embed_backward_share = static_cast<double>(o_.ranks);
  }

  ExchangePlan plan() {
    if (o_.communication == "zero1_ahead") gather_ahead();
    reduce_gradients();
    add("all_gather", "fp64", "norm_gather", norm_bytes(), {PlaceKind::norm}, {PlaceKind::update, 0});
    if (o_.communication == "zero1") gather_behind_update();
    if (o_.communication == "zero1_ahead") gather_beside_update();
    return std::move(plan_);
  }

 private:
  void add(const std::string& kind, const std::string& type, const std::string& op, int64_t bytes, StepPlace ready, StepPlace needed) {
    plan_.collectives.push_back({kind, type, op, bytes, ready, needed});
  }

  void gather(const GradientBucket& b, StepPlace ready, StepPlace needed) {
    add(o_.in_place ? "all_gather_in_place" : "all_gather", o_.weights_type, "gather_weights", b.elements * bytes_of_type(o_.weights_type),
        ready, needed);
  }

  // What the embedding and layer 0 read is gathered beside the update of the step before, because nothing at the head of a step hides it.
  static bool is_read_first(const GradientBucket& b) { return b.complete_after <= 0; }

  void gather_ahead() {
    for (auto b = buckets_.rbegin(); b != buckets_.rend(); ++b)
      if (!is_read_first(*b)) gather(*b, {PlaceKind::begin}, {PlaceKind::forward, b->complete_after});
  }

  void gather_beside_update() {
    int64_t first = 0;
    for (auto b = buckets_.rbegin(); b != buckets_.rend(); ++b) {
      if (!is_read_first(*b)) continue;
      gather(*b, {PlaceKind::update, 0}, {PlaceKind::end});
      first += b->elements;
    }
    const double share = static_cast<double>(first) / elements();
    if (share < 1) plan_.update_pieces = {share, 1 - share};
  }

  void gather_behind_update() {
    plan_.update_pieces.clear();
    const double all = elements();
    for (auto b = buckets_.rbegin(); b != buckets_.rend(); ++b) {
      gather(*b, {PlaceKind::update, static_cast<int64_t>(plan_.update_pieces.size())}, {PlaceKind::end});
      plan_.update_pieces.push_back(static_cast<double>(b->elements) / all);
    }
  }

  double elements() const {
    return static_cast<double>(std::accumulate(buckets_.begin(), buckets_.end(), int64_t{0},
                                               [](int64_t sum, const GradientBucket& b) { return sum + b.elements; }));
  }

  void reduce(const GradientBucket& b, StepPlace ready) {
    add(divided_ ? "reduce_scatter" : "all_reduce", b.type, "reduce_gradients", b.elements * bytes_of_type(b.type), ready,
        {PlaceKind::norm});
  }

  StepPlace complete(const GradientBucket& b) const {
    if (o_.communication == "all_reduce" || b.complete_after < 0) return {PlaceKind::embed_backward};
    return {PlaceKind::backward, b.complete_after};
  }

  // With gathered rows the embedding's bucket goes first, when the classifier's part of it is there, and those that layer 0 completes behind
  // the rows, which the embedding's backward waits for.
  void reduce_gradients() {
    if (!o_.gathered_rows) {
      for (const GradientBucket& b : buckets_) reduce(b, complete(b));
      return;
    }
    add("all_gather", "fp32", "reduce_gradients", o_.ranks * o_.tokens * 4, {PlaceKind::loss}, {PlaceKind::embed_backward});
    reduce(buckets_.back(), {PlaceKind::head});
    const auto of_layers = std::span(buckets_).first(buckets_.size() - 1);
    for (const GradientBucket& b : of_layers)
      if (b.complete_after > 0) reduce(b, complete(b));
    add("all_gather", "bf16", "reduce_gradients", o_.ranks * o_.tokens * o_.row_bytes, {PlaceKind::backward, 0},
        {PlaceKind::embed_backward});
    for (const GradientBucket& b : of_layers)
      if (b.complete_after == 0) reduce(b, complete(b));
  }

  // Where the gradients are divided, the sums of every block and the loss; else the loss alone.
  int64_t norm_bytes() const {
    int64_t blocks = 0;
    for (const GradientBucket& b : buckets_) blocks += b.elements / o_.ranks / kBlockElements;
    return o_.ranks * (divided_ ? blocks + 1 : 1) * 8;
  }

  const std::vector<GradientBucket>& buckets_;
  const ExchangeOptions& o_;
  bool divided_ = false;
  ExchangePlan plan_;
};

}  // namespace

int64_t bytes_of_type(const std::string& type) { return type == "bf16" ? 2 : type == "fp64" ? 8 : 4; }

ExchangePlan exchange_plan(const std::vector<GradientBucket>& buckets, const ExchangeOptions& o) {
  bool known = false;
  for (const std::string_view word : kCommunications) known = known || word == o.communication;
  if (!known) throw InputError(fmt::format("communication {}: expected {}", o.communication, fmt::join(kCommunications, ", ")));
  if (o.gathered_rows && o.communication == "all_reduce")
    throw InputError("communication all_reduce sends nothing before the end of the backward pass, so it gathers no rows");
  if (o.ranks < 2) return {};
  return Planner(buckets, o).plan();
}

}  // namespace profiler
