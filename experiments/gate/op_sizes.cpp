#include "experiments/gate/op_sizes.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "gpt2/tensor_table.h"

namespace gate {
namespace {

using Norm = OpSizes::Norm;

// Layers of a step whose products have the shapes of `model`.
void add_products(OpSizes& z, const gpt2::ModelConfig& model, int64_t rows, bool with_lm_head) {
  const int64_t C = model.channels;
  z.products.push_back({"qkv", rows, C, 3 * C, true});
  z.products.push_back({"attproj", rows, C, C, true});
  z.products.push_back({"mlp_up", rows, C, 4 * C, true});
  z.products.push_back({"mlp_down", rows, 4 * C, C, true});
  if (with_lm_head) z.products.push_back({"lm_head", rows, C, model.padded_vocab, false});
}

// What a case of fp32 logits holds at once: the inputs, the kernel's own copy, its first results, the answer in double, and a fifth as much again
// for what the judge adds up.
constexpr int64_t kBytesOfALogit = 24;
// What a case of more parameters than 31 bits count holds at once: 18 of masters, moments, gradients and weights in one vector each, 2 of
// gradients in two arenas, 2 of split masters, 6 of split moments, and as much again as is drawn of them.
constexpr int64_t kBytesOfAParameter = 32;

constexpr int64_t kRows = 4096, kManyRows = 16384 + 37;
// More rows, and more heads, than 16 bits count and than a grid has blocks in y or z: 65 * 1021. More rows of GPT-2's vocabulary than 31 bits
// count elements. The products have 6, 8 and 16 turns of 64 terms, where d12 has 12, and tiles enough that each CTA has several.
constexpr int64_t kBeyond16Bits = 66'365, kBeyond31Bits = 42'701, kOneTileMoreThanCtas = 2304 + 37, kTwiceRound = 528 * 4 + 391;
// Items from which on attention for Hopper cuts heads into items of three tiles: 8 for each of an H200's multiprocessors.
constexpr int64_t kThreeTiles = 8 * 132;

}  // namespace

OpSizes odd_sizes() {
  OpSizes z;
  z.name = "odd";
  z.embeddings = {
      {1, 1, 64, 509, 512, 64, TokenKind::repeated},
      {3, 63, 208, 509, 512, 64, TokenKind::repeated},
      {3, 65, 768, 1153, 1280, 128, TokenKind::repeated},
      {3, 64, 96, 509, 512, 64, TokenKind::one},
      {2, 300, 30, 257, 384, 301, TokenKind::repeated},
      {3, 63, 64, 509, 512, 64, TokenKind::different},
      {4, 65, 64, 509, 512, 65, TokenKind::skewed},
      // A block of the embedding has at most 256 threads: rows of d36, d48 and gpt3:c2560 take a second round of packs of 4, those
      // of the last a second of packs of 8 too, and those that no pack divides take six. 68 rows of one token lie in three chunks.
      {2, 34, 1280, 61, 64, 34, TokenKind::one},
      {2, 34, 1282, 61, 64, 35, TokenKind::repeated},
      {2, 34, 1600, 61, 64, 36, TokenKind::repeated},
      {2, 34, 2560, 61, 64, 34, TokenKind::one}};
  z.norms = {{1, 64, Norm::ordinary},    {189, 768, Norm::ordinary}, {195, 208, Norm::ordinary},
             {65, 1600, Norm::ordinary}, {70, 30, Norm::ordinary},   {1030, 128, Norm::ordinary},
             {64, 192, Norm::ordinary},  {63, 768, Norm::far_means}, {70, 30, Norm::far_means}};
  z.products = {{"", 1, 64, 192, true},   {"", 189, 768, 768, true}, {"", 65, 208, 624, true}, {"", 63, 3072, 96, true},
                {"", 64, 64, 512, false}, {"", 3, 192, 576, true},   {"", 195, 96, 384, true}, {"", 37, 200, 1160, true}};
  z.attentions = {{1, 1, 12, 64, false, true},    {3, 63, 3, 64, false, false},        {1, 64, 12, 64, false, false},
                  {3, 65, 12, 64, false, true},   {3, 65, 5, 16, false, false},        {1, 33, 3, 20, false, false},
                  {2, 129, 1, 128, false, false}, {1, 200, 2, 64, false, false},       {1, 130, 5, 64, true, true},
                  {1, 67, 5, 20, true, false},    {1, 131, 2, 64, false, false, true}, {1, 65, 20, 64, false, false},
                  {1, 33, 25, 64, false, false}};
  z.elements = {1, 1000, 12'345, 262'147};
  z.classifiers = {{1, 509, 512, false}, {63, 509, 512, false}, {5, 50257, 50304, false}, {40, 1153, 1280, true},
                   {9, 130, 256, false}, {9, 130, 131, false},  {5, 50257, 50304, true}};
  z.heads = {{1, 64, 509, 512, false},      {63, 200, 509, 512, false},  {189, 768, 1153, 1280, false}, {130, 768, 1000, 1016, false},
             {5, 768, 50257, 50304, false}, {40, 768, 1153, 1280, true}, {9, 768, 50257, 50304, true}};
  z.losses = {1, 63, 1000, 4099};
  z.gradients = {1, 31, 1000, 1025, 65'537, 1'048'577};
  z.updates = {{{17, 509, 512, 2, 1, 64}, {1, 2, 99, 1000, 100'000}}, {{17, 130, 256, 1, 1, 33}, {1, 1000}}};
  return z;
}

OpSizes real_sizes() {
  const gpt2::ModelConfig d12;
  OpSizes z;
  z.name = "real";
  z.ways = OpSizes::Ways::by_rows;
  const int64_t C = d12.channels, V = d12.vocab_size, Vp = d12.padded_vocab;
  z.embeddings = {{4, 1024, C, V, Vp, 1024, TokenKind::skewed},
                  {4, 1024, C, V, Vp, 1024, TokenKind::one},
                  {23, 714 - 1, C, V, Vp, 1024, TokenKind::different},
                  {23, 714 - 1, C, V, Vp, 1024, TokenKind::skewed},
                  {65, 1021, 64, V, Vp, 1024, TokenKind::skewed}};
  z.norms = {
      {kRows, C, Norm::ordinary}, {kManyRows, C, Norm::ordinary}, {kRows + 1, C, Norm::far_means}, {kBeyond16Bits, 64, Norm::ordinary}};
  // Every way that layernorm's kernels hold a row: C that no pack divides, that one block of packs holds, that several do.
  for (const int64_t channels : {30, 770, 1280, 1600, 2560}) z.norms.push_back({kTwiceRound, channels, Norm::ordinary});
  add_products(z, d12, kRows, true);
  add_products(z, d12, kManyRows, false);
  z.products.push_back({"", kBeyond16Bits, 64, 128, true});
  for (const int64_t channels : {384, 512, 1024}) {
    z.products.push_back({"mlp_up", kOneTileMoreThanCtas, channels, 3072, true});
    if (channels == 512) z.products.push_back({"mlp_down", kOneTileMoreThanCtas, 3072, channels, true});
  }
  // The products of d48, and of d36 and gpt3:c2560 those whose rows end in another part of a tile of 128 x 192: 5120 and 2560 columns.
  add_products(z, {.channels = 1600}, 195, false);
  z.products.push_back({"mlp_up", 130, 1280, 5120, true});
  z.products.push_back({"mlp_down", 67, 10240, 2560, true});
  // The last ones: heads of gpt3:c1536 (96 channels) and gpt3:c2560 (80), which are padded to 128 and leave a rest of it; and heads enough
  // that attention for Hopper gives each CTA a third tile (kThreeTiles items, mixed/hopper/attention.h), of which the last item has one.
  z.attentions = {{4, 1024, 12, 64, false, true},
                  {3, 1021, 12, 64, true, true},
                  {3, 1000, 5, 64, false, false},
                  {2049, 2, 32, 16, false, false},
                  {1, 2309, 2, 64, false, false},
                  {2, 67, 3, 96, false, true, false, false},
                  {1, 130, 2, 80, false, true, false, false},
                  {1, 130, 5, 80, true, false},
                  {kThreeTiles / 2 / 12 + 1, 200, 12, 64, false, false}};
  z.elements = {kRows * 4 * C, kManyRows * 4 * C + 1};
  z.classifiers = {{kRows, V, Vp, true}, {kManyRows, V, Vp, false}, {kBeyond16Bits, 509, 512, false}};
  // Not of 509 tokens: a frequent target's gradient, p - 1 with p near 1 / 509, lies between two numbers of bf16 and is rounded by what the
  // row's logit is, so 22,000 rows' errors add up where the sum itself does not.
  // The last ones: d36, d48 and gpt3:c2560, of which a warp or a block takes a row in more rounds.
  z.heads = {{kRows, C, V, Vp, true},       {kRows + 37, C, V, Vp, false},  {kBeyond16Bits, 64, 1153, 1280, false},
             {68, 1280, 1153, 1280, false}, {130, 1600, 1153, 1280, false}, {67, 2560, 1153, 1280, false}};
  z.losses = {kManyRows, kBeyond16Bits};
  z.gradients = {124'475'904, 124'475'905};
  z.updates = {{d12, {99}}, {{1024, V, V, 12, 12, C}, {100'000}}};
  return z;
}

OpSizes huge_sizes() {
  OpSizes z;
  z.name = "huge";
  z.ways = OpSizes::Ways::by_rows;
  const gpt2::ModelConfig d12;
  z.classifiers = {{kBeyond31Bits, d12.vocab_size, d12.padded_vocab, false}};
  z.heads = {{kBeyond31Bits, 64, d12.vocab_size, d12.padded_vocab, false}};
  // gpt3:c2560 with as few layers as make more than 2^31 parameters. At 2^30 a byte of a vector in fp32 needs 33 bits, at 2^31 an element 32.
  z.updates = {{{1024, d12.vocab_size, d12.padded_vocab, 26, 32, 2560}, {99}, 1 << 20, {int64_t{1} << 30, int64_t{1} << 31}}};
  return z;
}

OpSizes reduced_sizes() {
  OpSizes z;
  z.name = "reduced";
  z.ways = OpSizes::Ways::by_rows;
  // 2 x 528 blocks of 4 rows (layernorm_backward), 2 x 528 blocks of 512 packs of 8 (grad_norm):
  // tests/gate/op_sizes_test.cpp.
  constexpr int64_t C = 768, kTwice = 2 * 528 * 4 + 37;
  z.embeddings = {{5, 853, C, 50257, 50304, 1024, TokenKind::skewed}};
  z.norms = {{kTwice, C, Norm::ordinary}};
  z.products = {{"attproj", kTwice, C, C, true}, {"mlp_up", 1024, C, 4 * C, true}};
  z.attentions = {{1, 1021, 12, 64, false, false}};
  z.elements = {kTwice * C};
  z.classifiers = {{301, 50257, 50304, true}};
  z.heads = {{1057, C, 1153, 1280, true}};  // one more than the blocks that look for rows that were too large
  z.losses = {kTwice};
  z.gradients = {2 * 528 * 512 * 8 + 37};
  z.updates = {{{1024, 50257, 50304, 1, 12, C}, {99}}};
  return z;
}

OpSizes model_sizes(const gpt2::ModelConfig& model, int64_t B, int64_t T) {
  OpSizes z;
  z.name = fmt::format("B={} T={}", B, T);
  z.ways = OpSizes::Ways::plain;
  const int64_t rows = B * T, C = model.channels, V = model.vocab_size, Vp = model.padded_vocab;
  z.embeddings = {{B, T, C, V, Vp, model.max_seq_len, TokenKind::skewed}};
  z.norms = {{rows, C, Norm::ordinary}};
  add_products(z, model, rows, true);
  z.attentions = {{B, T, model.heads, C / model.heads, false, true}};
  z.elements = {rows * 4 * C};
  z.classifiers = {{rows, V, Vp, false}};
  if (C % 8 == 0 && Vp % 8 == 0) z.heads = {{rows, C, V, Vp, false}};
  z.losses = {rows};
  z.gradients = {gpt2::tensor_layout(model).total};
  z.updates = {{model, {2}}};
  return z;
}

std::vector<std::string> leave_out_what_needs_more(OpSizes& z, int64_t free_bytes) {
  std::vector<std::string> out;
  const auto take_out = [&](auto& shapes, const char* op) {
    std::erase_if(shapes, [&](const auto& s) {
      const bool too_large = kBytesOfALogit * s.rows * s.Vp > free_bytes;
      if (too_large) out.push_back(fmt::format("{} rows={} Vp={}", op, s.rows, s.Vp));
      return too_large;
    });
  };
  take_out(z.classifiers, "classifier");
  take_out(z.heads, "lm_head");
  std::erase_if(z.updates, [&](const OpSizes::Update& u) {
    const int64_t parameters = gpt2::tensor_layout(u.config).total;
    const bool too_large = u.each > 0 && kBytesOfAParameter * parameters > free_bytes;
    if (too_large) out.push_back(fmt::format("update and norm of {} parameters", parameters));
    return too_large;
  });
  return out;
}

OpSizes sizes_of(const std::string& name) {
  if (name == "odd") return odd_sizes();
  if (name == "real") return real_sizes();
  if (name == "huge") return huge_sizes();
  if (name == "reduced") return reduced_sizes();
  throw stepscope::InputError(fmt::format("op sizes '{}': expected odd, real, huge or reduced", name));
}

}  // namespace gate
