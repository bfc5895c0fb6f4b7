// `data --eval-set hellaswag|mmlu FILE… --out FILE.bin`: the questions of HellaSwag and MMLU as llm.c's evaluation set
// (gpt2/data/eval_set.h), tokenized as its dev/data/hellaswag.py and mmlu.py do it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace gpt2 {

struct EvalSetOptions {
  std::string form;                // "hellaswag" | "mmlu"
  std::vector<std::string> files;  // .jsonl; for mmlu also .csv
  std::string vocab, encoder, out;
};
struct MadeEvalSet {
  int64_t examples = 0;
  int64_t longest_row = 0;  // positions
};
// Throws stepscope::InputError "FILE:LINE: …, expected …" for a question that is not of the form; nothing is written then.
MadeEvalSet make_eval_set(const EvalSetOptions& options);

}  // namespace gpt2
