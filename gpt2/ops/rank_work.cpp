#include "gpt2/ops/rank_work.h"

#include <algorithm>

namespace gpt2::ops {
namespace {

double d(int64_t n) { return static_cast<double>(n); }

class Communications {
 public:
  void add(int layer, Op op, double bytes) {
    const auto same = std::find_if(all_.begin(), all_.end(), [&](const OpWork& w) { return w.layer == layer && w.op == op; });
    if (same != all_.end())
      same->min_bytes += bytes;
    else
      all_.push_back({Pass::communication, layer, op, 0, bytes});
  }
  const std::vector<OpWork>& all() const { return all_; }

 private:
  std::vector<OpWork> all_;
};

// Of a whole array of so many bytes: all of it is read by a reduction, and the rank's own slice by a gather.
double reduced(double bytes, bool divided, double ranks) { return bytes + (divided ? bytes / ranks : bytes); }
double gathered(double bytes, double ranks) { return bytes / ranks + bytes * (ranks - 1) / ranks; }

}  // namespace

std::vector<OpWork> work_of_rank(std::vector<OpWork> work, const RankPlan& plan, int64_t weight_bytes) {
  const double ranks = plan.buckets.ranks();
  const bool divided = plan.divides_the_update();
  for (OpWork& w : work) {
    if (divided && w.pass == Pass::optimizer && (w.op == Op::adamw || w.op == Op::grad_norm)) w.min_bytes /= ranks;
    // The rows of the last micro-batch of the others are read too.
    if (plan.gathers_rows() && w.pass == Pass::backward && w.op == Op::embedding)
      w.min_bytes += (ranks - 1) / ranks * d(plan.gathered_row_bytes() + 4 * plan.gathered_tokens());
  }
  Communications c;
  for (const distributed::Bucket& bucket : plan.buckets.buckets()) {
    const double fp32 = 4 * d(bucket.elements);
    switch (bucket.narrow ? GradientReduction::as_stored : plan.reduction) {
      case GradientReduction::as_stored:
        c.add(bucket.ready_after, Op::reduce_gradients, reduced(bucket.narrow ? fp32 / 2 : fp32, divided, ranks));
        break;
      case GradientReduction::as_bf16:  // rounded, reduced and widened again
        c.add(bucket.ready_after, Op::reduce_gradients,
              fp32 * 1.5 + reduced(fp32 / 2, divided, ranks) + (divided ? fp32 / ranks : fp32) * 1.5);
        break;
    }
    if (divided) c.add(bucket.ready_after, Op::gather_weights, gathered(d(bucket.elements * weight_bytes), ranks));
  }
  // Each rank's own are copied into their place first.
  if (plan.gathers_rows()) {
    const double bytes = d(plan.gathered_row_bytes() + 4 * plan.gathered_tokens());
    c.add(kNoLayer, Op::reduce_gradients, 2 * bytes / ranks + gathered(bytes, ranks));
  }
  c.add(kNoLayer, Op::norm_gather, gathered(8 * d(plan.sums_stride()) * ranks, ranks));
  work.insert(work.end(), c.all().begin(), c.all().end());
  return work;
}

}  // namespace gpt2::ops
