// The table of variants: one row each. What a row says about launches is held against a trace by tests/trainers/variant_launches_test.
#include "fp32/variants.h"

#include "fp32/kernels/attention.cuh"
#include "fp32/matmul.h"
#include "fp32/variant_rows.h"
#include "gpt2/ops/classifier.cuh"
#include "gpt2/ops/layernorm_backward.cuh"
#include "gpt2/ops/layernorm_forward.cuh"
#include "gpt2/tensor_table.h"

namespace fp32 {
namespace {

using Row = gpt2::VariantRow<VariantChoice, Run>;
using Refusal = std::optional<std::string>;
using gpt2::variant_value;

bool rows_pack(const Run& run) { return run.options.model.channels % 4 == 0; }  // arenas and tensors begin at multiples of C

Refusal no_bias_epilogue(const Run& run, const VariantChoice&) {
  const gpt2::ModelConfig& m = run.options.model;
  const int64_t rows = run.options.batch_size * run.options.seq_len;
  const gpt2::TensorLayout layout = gpt2::tensor_layout(m);
  // The library sees addresses only by their alignment, so the place in the arena is all that a pointer needs here.
  const auto place = [](int64_t offset) { return reinterpret_cast<float*>((int64_t{1} << 20) + offset * 4); };
  const auto parameter = [&](gpt2::Tensor t, int64_t layer) { return place(layout[t].offset + layer * layout[t].per_layer); };
  struct Linear {
    gpt2::Tensor weight, bias;
    int64_t in, out;
  };
  for (int64_t layer = 0; layer < m.layers; ++layer)
    for (const Linear& l : {Linear{gpt2::Tensor::qkvw, gpt2::Tensor::qkvb, m.channels, 3 * m.channels},
                            Linear{gpt2::Tensor::attprojw, gpt2::Tensor::attprojb, m.channels, m.channels},
                            Linear{gpt2::Tensor::fcw, gpt2::Tensor::fcb, m.channels, 4 * m.channels},
                            Linear{gpt2::Tensor::fcprojw, gpt2::Tensor::fcprojb, 4 * m.channels, m.channels}})
      if (auto why = run.why_no_product(linear_forward_product(LinearForward::bias_epilogue, place(0), place(0), parameter(l.weight, layer),
                                                               parameter(l.bias, layer), rows, l.in, l.out)))
        return why;
  return std::nullopt;
}
Refusal no_fused_rows(const Run& run, const VariantChoice&) {
  return gpt2::ops::why_not<float>(LayernormBackward::fused_rows, run.options.model.channels, rows_pack(run));
}
Refusal no_flash(const Run& run, const VariantChoice&) {
  return why_not_flash(matmul_rate_from_name(run.options.matmul), run.options.model.head_size(), run.shared_bytes_per_block);
}
Refusal no_one_read(const Run& run, const VariantChoice&) {
  const int64_t Vp = run.options.model.padded_vocab;
  return gpt2::ops::why_not<float>(Classifier::one_read, Vp, Vp % 4 == 0, run.shared_bytes_per_block);
}
constexpr std::string_view kByBlocks = "ranks update in blocks, which they may divide";
Refusal no_blocks(const Run& run, const VariantChoice&) {
  if (run.options.communicator != nullptr) return std::string(kByBlocks);
  return std::nullopt;
}

constexpr std::string_view kOneRank = "a step of one rank has no communication";
constexpr std::string_view kFlashHeads =
    "heads of more than 128 channels, with --matmul tf32 of more than 64, and with fp32 of more than 64 on GPUs whose blocks have less "
    "than 153 KiB of shared memory";
constexpr std::string_view kNorms = "forward/ln1 forward/ln2 forward/lnf";
constexpr std::string_view kNormsBackward = "backward/ln1 backward/ln2 backward/lnf";
constexpr std::string_view kLinears = "forward/qkv forward/attproj forward/mlp_up forward/mlp_down";
constexpr std::string_view kLinearsBackward = "backward/qkv backward/attproj backward/mlp_up backward/mlp_down";

// Launch counts hold where the scores are cut into four blocks of whole 64 rows: for T = 193 to 256, 385 to 512, and from 577 on.
constexpr std::array kRows{
    Row{.slot = "layernorm_forward",
        .name = "warp_per_row",
        .is = variant_value<&VariantChoice::layernorm_forward, LayernormForward::warp_per_row>(),
        .help = "one warp normalizes a row",
        .launches = {{{.where = kNorms, .must = "warp_per_row_forward_kernel", .never = "block_per_row_forward_kernel"}}}},
    Row{.slot = "layernorm_forward",
        .name = "block_per_row",
        .is = variant_value<&VariantChoice::layernorm_forward, LayernormForward::block_per_row>(),
        .help = "one block normalizes a row",
        .launches = {{{.where = kNorms, .must = "block_per_row_forward_kernel", .never = "warp_per_row_forward_kernel"}}}},

    Row{.slot = "layernorm_backward",
        .name = "fused_rows",
        .is = variant_value<&VariantChoice::layernorm_backward, LayernormBackward::fused_rows>(),
        .help = "one pass over the rows makes the input's gradient and both parameters' sums",
        .refused = "C above 8192, or above 2048 where C is no multiple of 4",
        .refuses = no_fused_rows,
        .launches = {{{.where = kNormsBackward, .must = "fused_rows_backward_kernel", .never = "columns_backward_kernel"}}}},
    Row{.slot = "layernorm_backward",
        .name = "separate_columns",
        .is = variant_value<&VariantChoice::layernorm_backward, LayernormBackward::separate_columns>(),
        .help = "one kernel for the input's gradient, one for the parameters' sums",
        .launches = {{{.where = kNormsBackward, .must = "columns_backward_kernel", .never = "fused_rows_backward_kernel"}}}},

    Row{.slot = "linear_forward",
        .name = "bias_epilogue",
        .is = variant_value<&VariantChoice::linear_forward, LinearForward::bias_epilogue>(),
        .help = "the product adds the bias of qkv, attproj, mlp_up and mlp_down",
        .refused = "shapes for which cuBLASLt has no such product: C no multiple of 4, for one",
        .refuses = no_bias_epilogue,
        .launches = {{{.where = kLinears, .never = "add_bias_kernel", .at_least = 1}}}},
    Row{.slot = "linear_forward",
        .name = "bias_kernel",
        .is = variant_value<&VariantChoice::linear_forward, LinearForward::bias_kernel>(),
        .help = "a kernel of its own adds the bias of qkv, attproj, mlp_up and mlp_down",
        .launches = {{{.where = kLinears, .must = "add_bias_kernel"}}}},

    Row{.slot = "linear_backward",
        .name = "transposed_dout",
        .is = variant_value<&VariantChoice::linear_backward, LinearBackward::transposed_dout>(),
        .help =
            "with --matmul tf32 a layer's weight gradient reads the output's gradient transposed, by a kernel that sums its columns too",
        .launches = {{{.where = kLinearsBackward, .must = "transpose_kernel"}}}},
    Row{.slot = "linear_backward",
        .name = "as_stored",
        .is = variant_value<&VariantChoice::linear_backward, LinearBackward::as_stored>(),
        .help = "products read operands as they lie; with --matmul fp32 both are this",
        .launches = {{{.where = kLinearsBackward, .never = "transpose_kernel", .at_least = 1}}}},

    Row{.slot = "attention_forward",
        .name = "flash",
        .is = variant_value<&VariantChoice::attention_forward, AttentionForward::flash>(),
        .help = "one kernel that never writes scores to memory; its products are at the rate of --matmul",
        .refused = kFlashHeads,
        .refuses = no_flash,
        .launches = {{{.where = "forward/attention", .must = "flash_forward_kernel", .never = "causal_softmax_kernel"}}},
        .formerly = "fused"},
    Row{.slot = "attention_forward",
        .name = "unfused_causal_blocks",
        .is = variant_value<&VariantChoice::attention_forward, AttentionForward::unfused_causal_blocks>(),
        .help = "scores as matrix products in up to four blocks of rows (of 64 at least), each as wide as its last row needs",
        .launches = {{{.where = "forward/attention", .must = "causal_softmax_kernel", .never = "flash_forward_kernel", .at_least = 11}}}},
    Row{.slot = "attention_forward",
        .name = "unfused",
        .is = variant_value<&VariantChoice::attention_forward, AttentionForward::unfused>(),
        .help = "scores as whole matrix products",
        .launches = {{{.where = "forward/attention", .must = "causal_softmax_kernel", .never = "flash_forward_kernel", .at_most = 10}}}},

    Row{.slot = "attention_backward",
        .name = "flash",
        .is = variant_value<&VariantChoice::attention_backward, AttentionBackward::flash>(),
        .help = "two kernels, for keys with values and for queries, that make the scores again; products as in attention_forward",
        .refused = kFlashHeads,
        .refuses = no_flash,
        .launches = {{{.where = "backward/attention", .must = "flash_backward_keys_kernel", .never = "causal_softmax_backward_kernel"},
                      {.where = "backward/attention", .must = "flash_backward_queries_kernel"}}},
        .formerly = "fused"},
    Row{.slot = "attention_backward",
        .name = "unfused_causal_blocks",
        .is = variant_value<&VariantChoice::attention_backward, AttentionBackward::unfused_causal_blocks>(),
        .help = "as attention_forward",
        .launches =
            {{{.where = "backward/attention", .must = "causal_softmax_backward_kernel", .never = "flash_backward", .at_least = 24}}}},
    Row{.slot = "attention_backward",
        .name = "unfused",
        .is = variant_value<&VariantChoice::attention_backward, AttentionBackward::unfused>(),
        .help = "as attention_forward",
        .launches =
            {{{.where = "backward/attention", .must = "causal_softmax_backward_kernel", .never = "flash_backward", .at_most = 18}}}},

    Row{.slot = "classifier",
        .name = "two_pass",
        .is = variant_value<&VariantChoice::classifier, Classifier::two_pass>(),
        .help = "a block reads its row of logits twice",
        .launches = {{{.where = "classifier/loss", .must = "two_pass_kernel", .never = "one_read_online_kernel"}}}},
    Row{.slot = "classifier",
        .name = "one_read",
        .is = variant_value<&VariantChoice::classifier, Classifier::one_read>(),
        .help = "a block keeps its row of logits in shared memory between one read and one write",
        .refused = "rows of logits larger than the shared memory of a block",
        .refuses = no_one_read,
        .launches = {{{.where = "classifier/loss", .must = "one_read_online_kernel", .never = "two_pass_kernel"}}},
        .formerly = "row_in_shared"},

    Row{.slot = "zero_grad",
        .name = "overwrite",
        .is = variant_value<&VariantChoice::zero_grad, ZeroGrad::overwrite>(),
        .help = "the first micro-batch overwrites the gradients",
        .launches = {{{.where = "optimizer/zero_grad", .at_most = 0}}}},
    Row{.slot = "zero_grad",
        .name = "memset",
        .is = variant_value<&VariantChoice::zero_grad, ZeroGrad::memset>(),
        .help = "gradients are set to zero first, and every micro-batch adds",
        .launches = {{{.where = "optimizer/zero_grad", .must = "memset"}}}},

    Row{.slot = "adamw",
        .name = "all_tensors",
        .is = variant_value<&VariantChoice::adamw, AdamWKernel::all_tensors>(),
        .help = "one launch updates all parameters",
        .launches = {{{.where = "optimizer/adamw", .must = "all_tensors_kernel", .never = "one_tensor_kernel"}}}},
    Row{.slot = "adamw",
        .name = "per_tensor",
        .is = variant_value<&VariantChoice::adamw, AdamWKernel::per_tensor>(),
        .help = "one launch for each tensor",
        .refused = "with several ranks",
        .refuses = no_blocks,
        .launches = {{{.where = "optimizer/adamw", .must = "one_tensor_kernel", .never = "all_tensors_kernel"}}}},

    Row{.slot = "communication",
        .name = "zero1_ahead",
        .is = variant_value<&VariantChoice::communication, Communication::zero1_ahead>(),
        .help = "a rank sums and updates its slice of every bucket and holds the optimizer state of those alone; ranks gather the weights "
                "at the "
                "head of the next step, beside its forward pass",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "communication",
        .name = "zero1",
        .is = variant_value<&VariantChoice::communication, Communication::zero1>(),
        .help = "as zero1_ahead, but ranks gather the weights at the end of the step",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "communication",
        .name = "all_reduce_overlapped",
        .is = variant_value<&VariantChoice::communication, Communication::all_reduce_overlapped>(),
        .help = "ranks sum the gradients of a bucket while the backward pass goes on; each updates all weights",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "communication",
        .name = "all_reduce",
        .is = variant_value<&VariantChoice::communication, Communication::all_reduce>(),
        .help = "ranks sum all gradients after the backward pass; each updates all weights",
        .unseen = kOneRank,
        .needs_ranks = true},

    Row{.slot = "gradient_reduction",
        .name = "stored",
        .is = variant_value<&VariantChoice::gradient_reduction, GradientReduction::as_stored>(),
        .help = "gradients travel between ranks as they are stored, in fp32",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "gradient_reduction",
        .name = "bf16",
        .is = variant_value<&VariantChoice::gradient_reduction, GradientReduction::as_bf16>(),
        .help = "gradients travel between ranks rounded to bf16, at half the bytes",
        .unseen = kOneRank,
        .needs_ranks = true},
};
static_assert(gpt2::rows_are_the_enumerators(kRows), "a variant has no row, or rows are not in the order of their enum");
static_assert(gpt2::covers_every_member(kRows), "a slot of VariantChoice has no rows");
static_assert(gpt2::rows_are_whole(kRows), "a row lacks its help, its launches or the words of its refusal");

}  // namespace

std::string Run::describe() const {
  const gpt2::ModelConfig& m = options.model;
  return fmt::format("C={} NH={} V={}, B={} T={}", m.channels, m.heads, m.vocab_size, options.batch_size, options.seq_len);
}

const VariantTable& variants() {
  static const VariantTable table("fp32", kRows);
  return table;
}

std::vector<gpt2::VariantInfo> variant_table() { return variants().slots(); }
VariantChoice choose_variants(const std::map<std::string, std::string>& wanted) { return variants().choose(wanted, false); }
int variant_index(std::string_view slot, std::string_view variant) { return variants().find(slot, variant).is.value; }

}  // namespace fp32
