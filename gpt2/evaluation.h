// Accuracy on an evaluation set as llm.c computes it (llmc/dataloader.h, evalloader_stat_losses): for each completion the mean loss over its
// tokens, in nats; the answer is the completion with the lowest, the first of equals.
//
// A row is context and completion. The position before a token predicts it, so the context's last position counts and the completion's last
// does not. Attention is causal: what pads a row cannot reach a position that counts, nor can the other rows of a batch.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpt2/data/eval_set.h"
#include "gpt2/trainer.h"

namespace gpt2 {

struct EvalItem {
  int64_t index = 0, label = 0;
  std::vector<double> loss;  // of each completion: mean over its tokens of -ln softmax(logits)[token], computed in double
  std::vector<double> sum;   // the same without the division: it favours short completions
  int64_t answer = 0;        // the lowest `loss`
  int64_t answer_by_sum = 0;
};

struct EvalOutcome {
  std::vector<EvalItem> items;  // in the order of the set
  int64_t correct = 0;          // `answer` is the label: llm.c's figure, "acc_norm" elsewhere
  int64_t correct_by_sum = 0;   // "acc" elsewhere
  bool left_off = false;        // `stop` ended it before its last example: no accuracy follows from the counts
};

// Positions that the longest row takes: its tokens without the last one, which nothing follows.
int64_t longest_row(std::span<const EvalExample> examples);
// Throws stepscope::InputError naming `source` and the example: a row of more than `positions`.
void check_rows_fit(std::span<const EvalExample> examples, int64_t positions, const std::string& source);

// In batches of the trainer's B rows, the last one filled up. Needs B*T*V floats of host memory. Throws what check_rows_fit and
// Trainer::evaluate throw, stepscope::InputError for a token outside the vocabulary, and std::runtime_error where a loss is not finite:
// no answer follows from such a model. `progress` is called after each batch with the examples that are done and right; then `stop` is
// looked at.
EvalOutcome evaluate_examples(Trainer& trainer, std::span<const EvalExample> examples,
                              const std::function<void(int64_t done, int64_t correct)>& progress = {},
                              const std::atomic<bool>* stop = nullptr);
std::string progress_text(int64_t done, int64_t correct, int64_t all);

// 95% interval of a share (Wilson 1927, without continuity correction).
std::pair<double, double> wilson_interval(int64_t successes, int64_t trials);

}  // namespace gpt2
