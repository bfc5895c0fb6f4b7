#include "gpt2/work_model.h"

#include <algorithm>

#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

// Counting rules, which the formulas below only spell out:
// - An op is what stands under one range path, however many kernels it takes: the backward of a linear layer
// is both of its
//   products and the bias gradient, and reads the gradient of its output once.
// - Everything that an op's inputs and outputs have in memory counts, biases and statistics included; what a
// clever fusion could
//   keep on the chip between two ops counts for both.
// - Parameter gradients are written by the first micro-step and read and written by the others.
// - Statistics (mean, 1/deviation, log-sum-exp), losses and token ids have 4 bytes at any precision.
namespace gpt2 {
namespace {

constexpr double kStatisticBytes = 4, kTokenBytes = 4;
constexpr double kMomentsBytes = 8;                 // m and v; more under StorageWidths::optimizer is a master copy
constexpr double kAttentionBackwardProducts = 2.5;  // five products of the forward's size where the forward has two

// The whole model in doubles: the counts of large models at large batches pass 2^63.
struct Shape {
  double B, T, M, C, L, NH, V, Vp, maxT, P;
  double micro_steps;
  StorageWidths w;

  double activation(double columns) const { return M * columns * w.activation; }
  double parameters(double count) const { return count * w.parameter; }
  double statistics(double per_token) const { return M * per_token * kStatisticBytes; }
  // Of all micro-steps together.
  double gradients(double count) const { return count * w.gradient * (2 * micro_steps - 1); }
  double attention_flops() const { return 2 * B * NH * T * (T + 1) * (C / NH); }  // two products over the causal half
  double embedding_rows() const { return std::min(M, V); }
};

Shape make_shape(const ModelConfig& c, int64_t batch, int64_t seq, int64_t accumulation, const StorageWidths& w) {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  return {d(batch),          d(seq),
          d(batch) * d(seq), d(c.channels),
          d(c.layers),       d(c.heads),
          d(c.vocab_size),   d(c.padded_vocab),
          d(c.max_seq_len),  d(tensor_layout(c).total),
          d(accumulation),   w};
}

class Counter {
 public:
  explicit Counter(const Shape& s) : s_(s) {}
  std::vector<OpWork> take() { return std::move(work_); }

  // `flops` and `bytes` of one micro-step; `gradient_bytes` of the whole step.
  void add(Pass pass, int layer, Op op, double flops, double bytes, double gradient_bytes = 0) {
    work_.push_back({pass, layer, op, flops * s_.micro_steps, bytes * s_.micro_steps + gradient_bytes});
  }
  void add_once(Op op, double bytes) { work_.push_back({Pass::optimizer, kNoLayer, op, 0, bytes}); }

  void linear_forward(int layer, Op op, double inputs, double outputs, bool bias = true) {
    add(Pass::forward, layer, op, 2 * s_.M * inputs * outputs,
        s_.activation(inputs) + s_.parameters(inputs * outputs + (bias ? outputs : 0)) + s_.activation(outputs));
  }
  void linear_backward(int layer, Op op, double inputs, double outputs, bool bias = true) {
    // reads dout, x, weight; writes dx; dweight and dbias are gradients
    add(Pass::backward, layer, op, 4 * s_.M * inputs * outputs,
        s_.activation(outputs) + s_.activation(inputs) + s_.parameters(inputs * outputs) + s_.activation(inputs),
        s_.gradients(inputs * outputs + (bias ? outputs : 0)));
  }
  void norm_forward(int layer, Op op) {
    add(Pass::forward, layer, op, 0, s_.activation(2 * s_.C) + s_.parameters(2 * s_.C) + s_.statistics(2));
  }
  // `stream`: the norm stands beside a residual stream, whose gradient it reads and writes instead of only
  // writing.
  void norm_backward(int layer, Op op, bool stream) {
    add(Pass::backward, layer, op, 0, s_.activation((stream ? 4 : 3) * s_.C) + s_.parameters(s_.C) + s_.statistics(2),
        s_.gradients(2 * s_.C));
  }
  void elementwise(Pass pass, int layer, Op op, double columns) { add(pass, layer, op, 0, s_.activation(columns)); }

 private:
  const Shape& s_;
  std::vector<OpWork> work_;
};

void layer_forward(Counter& count, const Shape& s, int l) {
  count.norm_forward(l, Op::ln1);
  count.linear_forward(l, Op::qkv, s.C, 3 * s.C);
  count.add(Pass::forward, l, Op::attention, s.attention_flops(), s.activation(4 * s.C) + s.statistics(s.NH));
  count.linear_forward(l, Op::attproj, s.C, s.C);
  count.elementwise(Pass::forward, l, Op::residual1, 3 * s.C);
  count.norm_forward(l, Op::ln2);
  count.linear_forward(l, Op::mlp_up, s.C, 4 * s.C);
  count.elementwise(Pass::forward, l, Op::gelu, 8 * s.C);
  count.linear_forward(l, Op::mlp_down, 4 * s.C, s.C);
  count.elementwise(Pass::forward, l, Op::residual2, 3 * s.C);
}

// The residuals have no backward op: their gradient is the stream's, which ln1 and ln2 add to.
void layer_backward(Counter& count, const Shape& s, int l) {
  count.linear_backward(l, Op::mlp_down, 4 * s.C, s.C);
  count.elementwise(Pass::backward, l, Op::gelu, 12 * s.C);
  count.linear_backward(l, Op::mlp_up, s.C, 4 * s.C);
  count.norm_backward(l, Op::ln2, true);
  count.linear_backward(l, Op::attproj, s.C, s.C);
  // reads qkv, out, dout, log-sum-exp; writes dqkv
  count.add(Pass::backward, l, Op::attention, kAttentionBackwardProducts * s.attention_flops(), s.activation(8 * s.C) + s.statistics(s.NH));
  count.linear_backward(l, Op::qkv, s.C, 3 * s.C);
  count.norm_backward(l, Op::ln1, true);
}

}  // namespace

StorageWidths widths_fp32() { return {4, 4, 4, 8}; }
StorageWidths widths_mixed() { return {2, 4, 2, 12}; }

std::vector<OpWork> step_work(const ModelConfig& model, int64_t batch, int64_t seq, int64_t accumulation, const StorageWidths& widths) {
  const Shape s = make_shape(model, batch, seq, accumulation, widths);
  Counter count(s);
  const int layers = static_cast<int>(model.layers);
  // Rows of wte: at most the vocabulary, however many tokens.
  count.add(Pass::encoder, kNoLayer, Op::embedding, 0,
            s.M * kTokenBytes + s.parameters(s.embedding_rows() * s.C + s.T * s.C) + s.activation(s.C));
  for (int l = 0; l < layers; ++l) layer_forward(count, s, l);
  count.norm_forward(kNoLayer, Op::lnf);
  count.linear_forward(kNoLayer, Op::lm_head, s.C, s.Vp, false);
  // Fused: logits become their gradient in place.
  count.add(Pass::classifier, kNoLayer, Op::loss, 0, s.activation(2 * s.Vp) + s.M * kTokenBytes + s.statistics(1));
  count.linear_backward(kNoLayer, Op::lm_head, s.C, s.Vp, false);
  count.norm_backward(kNoLayer, Op::lnf, false);
  for (int l = layers - 1; l >= 0; --l) layer_backward(count, s, l);
  // Adds to the rows of dwte that the lm head has written; dwpe is this op's own.
  count.add(Pass::backward, kNoLayer, Op::embedding, 0,
            s.M * kTokenBytes + s.activation(s.C) + 2 * s.embedding_rows() * s.C * widths.gradient, s.gradients(s.T * s.C));
  // For trainers that clear their gradients: those whose first micro-step overwrites them have no such range.
  count.add_once(Op::zero_grad, s.P * widths.gradient);
  count.add_once(Op::grad_norm, s.P * widths.gradient);
  // Reads g; reads and writes m, v and the master. A separate master spares the read of the parameter, which
  // is only written.
  const double parameter_accesses = widths.optimizer > kMomentsBytes ? 1 : 2;
  count.add_once(Op::adamw, s.P * (widths.gradient + 2.0 * widths.optimizer + parameter_accesses * widths.parameter));
  return count.take();
}

std::vector<OpWork> Trainer::work(int64_t micro_batches) const {
  const TrainerOptions& o = options();
  return step_work(o.model, o.batch_size, o.seq_len, micro_batches, widths_fp32());
}

double model_flops(const ModelConfig& model, int64_t batch, int64_t seq, int64_t accumulation) {
  double flops = 0;
  for (const OpWork& work : step_work(model, batch, seq, accumulation, widths_fp32())) flops += work.flops;
  return flops;
}

}  // namespace gpt2
