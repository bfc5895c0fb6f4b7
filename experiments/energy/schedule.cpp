#include "experiments/energy/schedule.h"

#include <algorithm>
#include <cmath>

namespace energy {
namespace {
constexpr double kStepsInWindow = 12;
constexpr int64_t kMostNodes = 20000;
}  // namespace

double window_length(double step_s) {
  // A hundredth over is not another cycle.
  return kClockCycle_s * std::max(2.0, std::ceil(kStepsInWindow * step_s / kClockCycle_s - 0.01));
}

int64_t copies_for(double op_s, int64_t launches, double step_s, double added_share) {
  const int64_t most = std::max<int64_t>(1, kMostNodes / std::max<int64_t>(1, launches));
  if (op_s <= 0) return most;
  return std::clamp<int64_t>(std::llround(std::min(added_share * step_s / op_s, 1e9)), 1, most);
}

std::vector<int> round_order(const std::vector<int>& ops, bool reversed) {
  std::vector<int> turned(ops);
  if (reversed) std::reverse(turned.begin(), turned.end());
  std::vector<int> order{kStepAlone};
  for (size_t i = 0; i < turned.size(); ++i) {
    order.push_back(turned[i]);
    if ((i + 1) % kOpsBetweenSteps == 0 && i + 1 < turned.size()) order.push_back(kStepAlone);
  }
  order.push_back(kStepAlone);
  return order;
}

RunSettings settings_of(const gpt2::Trainer& trainer, const gpt2::LoopOptions& loop) {
  const gpt2::TrainerOptions& t = trainer.options();
  RunSettings s;
  s.trainer = trainer.name();
  s.device = trainer.device();
  s.model = loop.model;
  s.matmul = t.matmul;
  s.recompute = t.recompute;
  s.weight_rounding = t.weight_rounding;
  s.variants = t.variants;
  s.batch_size = t.batch_size;
  s.seq_len = t.seq_len;
  s.accumulation = loop.accumulation;
  return s;
}

}  // namespace energy
