// The names of the model gate's checks.
#include <fmt/format.h>

#include "experiments/gate/model_gate.h"

namespace gate {
namespace {

std::string sentence_of(const Case& c) {
  const gpt2::ModelConfig& m = c.config;
  const std::string what = c.stress == Stress::none
                               ? fmt::format("a small model with B = {}, T = {}, {} {} of C = {}, {} {}, V = {} padded to {}", c.batch_size,
                                             c.seq_len, m.layers, m.layers == 1 ? "layer" : "layers", m.channels, m.heads,
                                             m.heads == 1 ? "head" : "heads", m.vocab_size, m.padded_vocab)
                               : sentence(c.stress);
  if (!c.only_gradient.empty()) return fmt::format("{} (the gradient of {} alone)", what, c.only_gradient);
  return what + (c.forward_only ? " (logits and loss alone)" : "");
}

// The parts into which steps that are judged twice are cut (step_judge.h), with what each holds against what.
struct StepPart {
  const char *name, *what;
};
constexpr StepPart kStepParts[] = {{"grad norm", "the reported norm, against the oracle's"},
                                   {"gradients", "gradients, against the oracle's"},
                                   {"norm", "the reported norm, against that of the trainer's own gradients"},
                                   {"m", "first moments, against AdamW of the trainer's own gradients"},
                                   {"v", "second moments, the same"},
                                   {"update", "parameters, against AdamW's from the trainer's own moments"},
                                   {"weights", "weights, against the rounded parameters; at random, each with bits of its own"}};

std::vector<ModelCheck> all_checks() {
  std::vector<ModelCheck> all{
      {"tensor table", "order, shapes and decay of the tensors are those that the judge has written down"},
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
      {"weights", "weights are the rounded parameters; at random, each is rounded with bits of its own"},
      {"skipped update",
       "a loss or norm above its limit leaves parameters and moments as they are, and weights rounded at random as the next step draws "
       "them"},
      {"between steps", "evaluation, logits and sampling before and between steps change nothing of the steps"},
      {"not finite", "what is no number, in any tensor, reaches loss and norm, and a run ends there without a checkpoint of that step"},
      {"accumulation", "two micro-batches are one step of the mean gradient"},
      {"causality", "no later token changes an earlier logit by a bit, and none a logit of another sequence"},
      {"padding", "padded vocabulary takes no part"},
      {"trajectory", "losses of a short run"},
      {"fresh inputs", "the oracle once more after everything else, same shapes and weights, new tokens"},
      {"repeatability", "new trainer, used trainer, queued steps, steps without a graph: the same bits; nothing measured is kept"}};
  for (const Case& c : small_cases()) all.push_back({c.name, sentence_of(c)});
  all.push_back(
      {"steps loss", "losses of whole steps of 1, 2, 3 and 5 micro-batches from t = 1, 99, 1000 and 100000, against the oracle's"});
  for (const StepPart& part : kStepParts) all.push_back({fmt::format("steps {}", part.name), fmt::format("the same steps: {}", part.what)});
  all.push_back({"d12 forward", "logits and loss of GPT-2's smallest model at T = 1024, against the oracle's"});
  for (const StepPart& part : kStepParts)
    all.push_back({fmt::format("d12 {}", part.name), fmt::format("a whole step of that model: {}", part.what)});
  const std::vector<ModelCheck> rest{
      {"schedule", "the learning rate of every step, of four schedules"},
      {"loader", "every batch is the one that the files hold"},
      {"loop", "steps, settings, log and validation of a run"},
      {"resume", "a run that was cut by a checkpoint is the run that was not, also behind a step that was left out and with --overfit"},
      {"outliers", "which steps are left out follows from the losses and norms before them"},
      {"rounding", "no two steps round alike what is rounded at random: weights, moments"},
      {"timed steps", "steps taken as an arm takes them, then again by a fresh trainer"},
      {"clock", "reported times add up to the judge's clock"},
      {"late work", "a finished step has finished"},
      {"persisting L2", "no part of L2 is set aside"},
      {"wide", "a layer with the 1,600 channels and 25 heads of GPT-2's largest model, against the oracle"},
      {"many rows", "90,112 rows, and 131,072 rows of 48 layers, as one batch and as small ones: losses and gradients"},
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
