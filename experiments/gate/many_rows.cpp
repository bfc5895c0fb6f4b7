#include "experiments/gate/many_rows.h"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <stdexcept>
#include <string>

#include "gpt2/tensor_table.h"

namespace gate {
namespace {

struct Sums {
  double evaluated = 0, loss = 0;
  std::vector<double> gradients;
};

// Of `count` batches of the trainer's own size, from the first token on.
Sums mean_over(gpt2::Trainer& trainer, std::span<const float> parameters, const Tokens& tokens, int64_t count) {
  const auto rows = static_cast<size_t>(trainer.options().batch_size * trainer.options().seq_len);
  trainer.write(gpt2::State::parameters, parameters);
  Sums sums;
  sums.gradients.resize(parameters.size());
  std::vector<float> gradients(parameters.size());
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const gpt2::Batch batch{std::span(tokens.inputs).subspan(i * rows, rows), std::span(tokens.targets).subspan(i * rows, rows)};
    sums.evaluated += trainer.evaluate(batch) / static_cast<double>(count);
    sums.loss += trainer.forward_backward(batch) / static_cast<double>(count);
    trainer.read(gpt2::State::gradients, gradients);
#pragma omp parallel for schedule(static)
    for (size_t k = 0; k < gradients.size(); ++k) sums.gradients[k] += static_cast<double>(gradients[k]) / static_cast<double>(count);
  }
  return sums;
}

double norm_of(std::span<const double> values) {
  double squares = 0;
#pragma omp parallel for schedule(static) reduction(+ : squares)
  for (size_t i = 0; i < values.size(); ++i) squares += values[i] * values[i];
  return std::sqrt(squares);
}

double relative(double got, double want) { return std::abs(got - want) / std::abs(want); }

}  // namespace

Case many_rows_case() {
  return {
      "many rows", {.max_seq_len = 1024, .vocab_size = 50257, .padded_vocab = 50304, .layers = 1, .heads = 12, .channels = 768}, 88, 1024};
}

Case many_layers_case() {
  return {"many layers", {.max_seq_len = 256, .vocab_size = 509, .padded_vocab = 512, .layers = 48, .heads = 2, .channels = 128}, 512, 256};
}

double many_rows_budget(std::string_view matmul) { return matmul == "fp32" ? 1e-3 : 1e-2; }
double many_layers_budget(std::string_view matmul) { return matmul == "bf16" ? 4e-2 : many_rows_budget(matmul); }

std::vector<CheckResult> check_many_rows(const std::function<std::unique_ptr<gpt2::Trainer>(int64_t)>& make, const Case& c, int64_t piece,
                                         double budget, uint64_t seed) {
  if (c.batch_size % piece != 0) throw std::logic_error("check_many_rows: pieces that do not make the batch");
  const std::vector<float> parameters = trained_like_parameters(c, seed);
  const Tokens tokens = random_tokens(c, seed, 0);
  Sums whole = mean_over(*make(c.batch_size), parameters, tokens, 1);
  const Sums pieces = mean_over(*make(piece), parameters, tokens, c.batch_size / piece);

  const std::string detail = fmt::format("{} sequences of {} and {} at a time, {} {}", c.batch_size, c.seq_len, piece, c.config.layers,
                                         c.config.layers == 1 ? "layer" : "layers");
  std::vector<CheckResult> out{
      make_result("many rows", "evaluate", {{"relative", relative(whole.evaluated, pieces.evaluated), budget / 100}}, detail),
      make_result("many rows", "loss", {{"relative", relative(whole.loss, pieces.loss), budget / 100}}, detail)};
  const gpt2::TensorLayout layout = gpt2::tensor_layout(c.config);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const auto from = static_cast<size_t>(layout[row.id].offset), size = static_cast<size_t>(layout[row.id].size);
    const std::span<double> got = std::span(whole.gradients).subspan(from, size);
    const std::span<const double> want = std::span(pieces.gradients).subspan(from, size);
    const double norm = norm_of(want);
    for (size_t i = 0; i < size; ++i) got[i] -= want[i];
    out.push_back(make_result("many rows", std::string(row.name), {{"norm", norm_of(got) / norm, budget}}, detail));
  }
  return out;
}

}  // namespace gate
