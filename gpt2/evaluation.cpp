#include "gpt2/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/errors.h"

namespace gpt2 {
namespace {

double loss_of(const float* logits, size_t V, size_t token) {
  const double most = *std::max_element(logits, logits + V);
  double sum = 0;
  for (size_t w = 0; w < V; ++w) sum += std::exp(static_cast<double>(logits[w]) - most);
  return most + std::log(sum) - static_cast<double>(logits[token]);
}

// The rows of all examples in order, B at a time through the trainer.
class Scorer {
 public:
  Scorer(Trainer& trainer, std::span<const EvalExample> examples)
      : trainer_(trainer),
        examples_(examples),
        B_(static_cast<size_t>(trainer.options().batch_size)),
        T_(static_cast<size_t>(trainer.options().seq_len)),
        V_(static_cast<size_t>(trainer.options().model.vocab_size)),
        inputs_(B_ * T_),
        targets_(B_ * T_),
        logits_(B_ * T_ * V_) {
    check_rows_fit(examples, trainer.options().seq_len, "evaluation set");
    for (size_t i = 0; i < examples.size(); ++i) {
      const EvalExample& e = examples[i];
      EvalItem item;
      item.index = static_cast<int64_t>(i);
      item.label = e.label;
      item.loss.resize(e.completions.size());
      item.sum.resize(e.completions.size());
      outcome_.items.push_back(std::move(item));
      check_tokens(e.context, i);
      for (const auto& c : e.completions) check_tokens(c, i);
    }
  }

  EvalOutcome run(const std::function<void(int64_t, int64_t)>& progress, const std::atomic<bool>* stop) {
    for (size_t i = 0; i < examples_.size(); ++i) {
      for (size_t c = 0; c < examples_[i].completions.size(); ++c) {
        if (rows_.size() == B_) {
          score(progress);
          outcome_.left_off = stop != nullptr && stop->load();
          if (outcome_.left_off) return std::move(outcome_);
        }
        rows_.push_back({i, c});
      }
    }
    if (!rows_.empty()) score(progress);
    return std::move(outcome_);
  }

 private:
  struct Row {
    size_t example, completion;
  };
  // One loss to compute: `position` counts through the batch.
  struct Term {
    size_t row, position, token;
    double loss = 0;
  };

  void check_tokens(const std::vector<uint16_t>& tokens, size_t example) const {
    for (const uint16_t t : tokens)
      if (t >= V_)
        throw stepscope::InputError(fmt::format("evaluation set: example {} has token {}, expected 0 to {}", example, t, V_ - 1));
  }

  void score(const std::function<void(int64_t, int64_t)>& progress) {
    std::fill(inputs_.begin(), inputs_.end(), 0);
    std::vector<Term> terms;
    for (size_t r = 0; r < rows_.size(); ++r) place(r, terms);
    trainer_.evaluate({inputs_, targets_}, logits_);
    const auto count = static_cast<int64_t>(terms.size());
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; ++i) {
      Term& t = terms[static_cast<size_t>(i)];
      t.loss = loss_of(logits_.data() + t.position * V_, V_, t.token);
    }
    for (const Term& t : terms) outcome_.items[rows_[t.row].example].sum[rows_[t.row].completion] += t.loss;
    for (const Row& row : rows_) finish(row);
    rows_.clear();
    if (progress) progress(done_, outcome_.correct);
  }

  void place(size_t r, std::vector<Term>& terms) {
    const EvalExample& e = examples_[rows_[r].example];
    const std::vector<uint16_t>& completion = e.completions[rows_[r].completion];
    const size_t begin = r * T_;
    std::copy(e.context.begin(), e.context.end(), inputs_.begin() + static_cast<ptrdiff_t>(begin));
    std::copy(completion.begin(), completion.end() - 1, inputs_.begin() + static_cast<ptrdiff_t>(begin + e.context.size()));
    for (size_t k = 0; k < completion.size(); ++k) terms.push_back({r, begin + e.context.size() - 1 + k, completion[k]});
  }

  void finish(const Row& row) {
    const EvalExample& e = examples_[row.example];
    EvalItem& item = outcome_.items[row.example];
    const double sum = item.sum[row.completion];
    if (!std::isfinite(sum))
      throw std::runtime_error(
          fmt::format("example {}, completion {}: the loss is {}; the model's logits are not finite", row.example, row.completion, sum));
    item.loss[row.completion] = sum / static_cast<double>(e.completions[row.completion].size());
    if (row.completion + 1 < e.completions.size()) return;
    const auto lowest = [](const std::vector<double>& v) { return std::min_element(v.begin(), v.end()) - v.begin(); };
    item.answer = lowest(item.loss);
    item.answer_by_sum = lowest(item.sum);
    outcome_.correct += item.answer == item.label;
    outcome_.correct_by_sum += item.answer_by_sum == item.label;
    ++done_;
  }

  Trainer& trainer_;
  std::span<const EvalExample> examples_;
  size_t B_, T_, V_;
  std::vector<int32_t> inputs_, targets_;  // targets: a mean loss that nobody reads
  std::vector<float> logits_;
  std::vector<Row> rows_;
  EvalOutcome outcome_;
  int64_t done_ = 0;
};

int64_t longest_row_of(const EvalExample& e) {
  size_t longest = 0;
  for (const auto& c : e.completions) longest = std::max(longest, c.size());
  return static_cast<int64_t>(e.context.size() + longest) - 1;
}

}  // namespace

int64_t longest_row(std::span<const EvalExample> examples) {
  int64_t longest = 0;
  for (const EvalExample& e : examples) longest = std::max(longest, longest_row_of(e));
  return longest;
}

void check_rows_fit(std::span<const EvalExample> examples, int64_t positions, const std::string& source) {
  for (size_t i = 0; i < examples.size(); ++i)
    if (const int64_t row = longest_row_of(examples[i]); row > positions)
      throw stepscope::InputError(fmt::format("{}: example {} takes {} positions, expected at most {}", source, i, row, positions));
}

EvalOutcome evaluate_examples(Trainer& trainer, std::span<const EvalExample> examples,
                              const std::function<void(int64_t done, int64_t correct)>& progress, const std::atomic<bool>* stop) {
  return Scorer(trainer, examples).run(progress, stop);
}

std::string progress_text(int64_t done, int64_t correct, int64_t all) {
  const double accuracy = done > 0 ? static_cast<double>(correct) / static_cast<double>(done) : 0.0;
  return fmt::format("eval: {} of {} examples, accuracy {:.4f}", done, all, accuracy);
}

std::pair<double, double> wilson_interval(int64_t successes, int64_t trials) {
  constexpr double z = 1.959963984540054;  // 97.5% quantile of the normal distribution
  const double n = static_cast<double>(trials), p = static_cast<double>(successes) / n;
  const double centre = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

}  // namespace gpt2
