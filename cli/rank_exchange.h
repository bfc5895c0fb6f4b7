// What the ranks of a profiled run would say to each other: the trainers' own plan of buckets (gpt2/distributed/bucket_plan.h), for the cost
// model, which may not know it (docs/architecture.md).
#pragma once
#include <cstdint>
#include <string>

#include "profiler/document/profile.h"
#include "profiler/ranks/exchange_plan.h"

namespace cli {

struct RankExchange {
  std::string communication = "zero1_ahead";
  std::string embedding = "auto";     // dense | gathered_rows | gathered_bf16_rows; auto: as the trainer would choose
  std::string reduce = "fp32";        // of gradients that lie in fp32
  int64_t bucket_mib = 0;             // 0: as the trainer would choose
  std::string communicator = "nccl";  // nccl | peer | staged
};

// The collectives of a step of `ranks` ranks with `rows` tokens each in a micro-batch, for the model and the trainer of `document`. Throws
// stepscope::InputError for a document without a model.
profiler::ExchangePlan exchange_of(const profiler::ProfileDocument& document, const RankExchange& exchange, int64_t ranks, double rows);

}  // namespace cli
