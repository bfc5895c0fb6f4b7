// The shapes that op cases are made at. The gate takes odd ones and those that train; `kernels` takes a
// model's.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/gate/op_inputs.h"
#include "gpt2/config.h"

namespace gate {

struct OpSizes {
  struct Embedding {
    int64_t B, T, C, V, Vp, max_seq_len;
    TokenKind tokens;
  };
  enum class Norm {
    ordinary,   // where there are more than 20 rows: an outlier, a row of zeros, a constant one, one of
                // denormals among them
    far_means,  // every row's mean is 300, far above its deviation
  };
  struct Rows {
    int64_t rows, C;
    Norm values;
  };
  struct Product {
    std::string place;
    int64_t rows, in, out;
    bool bias;
  };
  struct Attention {
    int64_t B, T, NH, HS;
    bool hurt;
    bool with_cudnn;         // which builds a plan per shape, and that takes seconds
    bool low = false;        // scores far below 0, the forward alone
    bool every_plan = true;  // with_cudnn: also the plans that a search takes, which are as many seconds again
  };
  struct Classifier {
    int64_t rows, V, Vp;
    bool hurt;
  };
  struct Head {
    int64_t rows, C, V, Vp;
    bool hurt;  // needs 9 rows
  };
  struct Update {
    gpt2::ModelConfig config;
    std::vector<int64_t> steps;
    // Not 0: of more parameters than 31 bits count so many are asked at both ends and around each of these places, and their norm too.
    int64_t each = 0;
    std::vector<int64_t> places{};
  };

  std::string name;
  // Gradients written over and added to, in place and not: all of it; or what the number of rows says (odd:
  // adds); or what a step of one micro-batch does.
  enum class Ways { every, by_rows, plain } ways = Ways::every;
  std::vector<Embedding> embeddings;
  std::vector<Rows> norms;
  std::vector<Product> products;
  std::vector<Attention> attentions;
  std::vector<int64_t> elements;  // of gelu and residual sums
  std::vector<Classifier> classifiers;
  std::vector<Head> heads;  // C and Vp are multiples of 8: the own product has no others
  std::vector<int64_t> losses;
  std::vector<int64_t> gradients;
  std::vector<Update> updates;
};

// Rows that fill no block, channels that no power of two divides, a last tile that is nearly empty.
OpSizes odd_sizes();
// d12 at B x T = 4096 and at 16384 + 37 rows, 124M parameters: every loop over a grid with a limit turns more
// than once. And more rows and heads than 16 bits count, with few channels; and the channels and heads of wider models, with few rows.
OpSizes real_sizes();
// Logits of more elements than 31 bits count, some 45 GB of memory, and as many parameters, some 62 GB.
OpSizes huge_sizes();
// Takes out what a device of so much free memory cannot hold, and says which.
std::vector<std::string> leave_out_what_needs_more(OpSizes& sizes, int64_t free_bytes);
// The fewest rows at which these loops turn twice, for compute-sanitizer's racecheck.
OpSizes reduced_sizes();
OpSizes model_sizes(const gpt2::ModelConfig& model, int64_t batch_size, int64_t seq_len);
// "odd", "real", "huge", "reduced". Throws stepscope::InputError for another name.
OpSizes sizes_of(const std::string& name);

}  // namespace gate
