// The names of the model gate's checks.
#include <fmt/format.h>

#include "experiments/gate/model_gate.h"

namespace gate {
namespace {

std::vector<ModelCheck> all_checks() {
  std::vector<ModelCheck> all{{"tensor table", "order, shapes and decay of the tensors are those that the judge has written down"},
                              {"fresh model", "a fresh model has GPT-2's means and deviations, and zero moments"},
                              {"forward", "logits and loss against the oracle"},
                              {"loss of logits", "the loss is that of the trainer's own logits"},
                              {"gradients", "every gradient tensor against the oracle: norm, worst row, worst column"},
                              {"evaluate", "forward alone gives what forward and backward gave, also after other tokens"},
                              {"grad norm", "the reported norm is that of the trainer's own gradients, and near the oracle's"},
                              {"optimizer", "losses of five AdamW steps against the oracle"},
                              {"step gradients", "gradients of five AdamW steps against the oracle"},
                              {"adam m", "first moments are AdamW's of the trainer's own gradients, clipped"},
                              {"adam v", "second moments, the same"},
                              {"update", "parameters are AdamW's from the trainer's own moments; padding stays zero"},
                              {"weights", "weights are the rounded parameters"},
                              {"skipped update", "a loss or norm above its limit leaves parameters and moments as they are"},
                              {"accumulation", "two micro-batches are one step of the mean gradient"},
                              {"causality", "no later token changes an earlier logit by a bit"},
                              {"padding", "padded vocabulary takes no part"},
                              {"trajectory", "losses of a short run"},
                              {"fresh inputs", "the oracle once more after everything else, same shapes and weights, new tokens"},
                              {"repeatability", "new trainer, used trainer, queued steps, steps without a graph: the same bits"}};
  for (const Case& c : small_cases()) all.push_back({c.name, "a small model that stresses one thing"});
  for (const char* part : {"loss", "grad norm", "gradients", "norm", "m", "v", "update", "weights"})
    all.push_back({fmt::format("steps {}", part), "whole steps of 1, 2, 3 and 5 micro-batches from t = 1, 99, 1000, 100000"});
  for (const char* part : {"forward", "gradients", "grad norm", "norm", "m", "v", "update", "weights"})
    all.push_back({fmt::format("d12 {}", part), "a whole step of GPT-2's smallest model at T = 1024"});
  const std::vector<ModelCheck> rest{{"schedule", "the learning rate of every step, of four schedules"},
                                     {"loader", "every batch is the one that the files hold"},
                                     {"loop", "steps, settings, log and validation of a run"},
                                     {"resume", "a run that was cut by a checkpoint is the run that was not"},
                                     {"outliers", "which steps are left out follows from the losses and norms before them"},
                                     {"rounding", "no two steps round alike what is rounded at random: weights, moments"},
                                     {"timed steps", "steps taken as an arm takes them, then again by a fresh trainer"},
                                     {"clock", "reported times add up to the judge's clock"},
                                     {"late work", "a finished step has finished"},
                                     {"persisting L2", "no part of L2 is set aside"},
                                     {"many rows", "90,112 rows as one batch and as small ones: losses and gradients"},
                                     {"red zone", "nothing was written behind a trainer's device memory"},
                                     {"inputs", "tokens and parameters are as they were after every call that may only read them"},
                                     {"launch error", "no launch failed unseen"}};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace

const std::vector<ModelCheck>& model_checks() {
  static const std::vector<ModelCheck> all = all_checks();
  return all;
}

}  // namespace gate
