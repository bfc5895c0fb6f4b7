// The variants of what ranks say to each other in a step (gradient_exchange.h). Apart from variants.h, so that a new one compiles no kernel.
#pragma once

namespace gpt2::ops {

enum class Communication { zero1_ahead, zero1, all_reduce_overlapped, all_reduce };
enum class EmbeddingExchange { gathered_bf16_rows, gathered_rows, dense };
enum class ExchangeStart { when_ready, together };
enum class GradientReduction { as_stored, as_bf16 };

}  // namespace gpt2::ops
