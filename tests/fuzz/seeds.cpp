// fuzz_seeds FOLDER: a few small valid files of each format, to start the fuzzers from.
#include <cstdio>
#include <filesystem>

#include "base/atomic_file.h"
#include "gpt2/checkpoint.h"
#include "gpt2/data/eval_set.h"
#include "gpt2/data/hugging_face_config.h"
#include "gpt2/data/token_shards.h"
#include "gpt2/data/tokenizer.h"
#include "gpt2/tensor_table.h"
#include "gpt2/training_state.h"
#include "tests/gpt2/small_vocabulary.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  const std::filesystem::path root = argv[1];
  for (const char* name : {"checkpoint", "training_state", "token_shard", "tokenizer", "reference_state", "bpe", "safetensors",
                           "hugging_face_config", "eval_set", "ncu_report", "ncu_csv"})
    std::filesystem::create_directories(root / name);
  const gpt2::ModelConfig small{4, 5, 6, 1, 2, 4}, smallest{1, 1, 1, 1, 1, 1};
  const auto p = gpt2::init_parameters(small, 1);
  gpt2::save_checkpoint(root / "checkpoint/fp32", small, p);
  gpt2::save_checkpoint(root / "checkpoint/bf16", small, p, gpt2::CheckpointPrecision::bf16);
  gpt2::save_checkpoint(root / "checkpoint/smallest", smallest, gpt2::init_parameters(smallest, 1));
  gpt2::TrainingState state;
  state.step = 3;
  state.m = state.v = p;
  gpt2::save_training_state(root / "training_state/small", state);
  state.m = state.v = {1.0f};
  gpt2::save_training_state(root / "training_state/smallest", state);
  gpt2::write_token_shard(root / "token_shard/long", std::vector<uint16_t>(100, 7));
  gpt2::write_token_shard(root / "token_shard/short", std::vector<uint16_t>(1, 65535));
  gpt2::write_tokenizer(root / "tokenizer/words", std::vector<std::string>{"a", "bc", std::string(255, 'x'), "<|end|>"}, 3);
  gpt2::write_tokenizer(root / "tokenizer/one", std::vector<std::string>{"a"}, 0);
  gpt2::write_file_atomically(root / "bpe/words",
                              std::string(gpt2::testing::kSmallMerges) + '\0' + "hello's  worlds\n\n42 \xff\xe2\x82 caf\u00e9");
  gpt2::write_file_atomically(root / "bpe/long", std::string("a a\naa aa\nb aa\n") + '\0' + "b" + std::string(90, 'a'));
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})";
  gpt2::write_file_atomically(root / "safetensors/two",
                              std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + std::string(10, 'x'));
  gpt2::write_file_atomically(root / "hugging_face_config/small", gpt2::hugging_face_config_text(small, gpt2::CheckpointPrecision::fp32));
  gpt2::write_eval_set(root / "eval_set/two", std::vector<gpt2::EvalExample>{{1, {1, 2, 3}, {{4}, {5, 6}}}, {0, {7}, {{8}, {9}}}});
  const gpt2::ReferenceState reference{2, 3, std::vector<int32_t>(6, 1), std::vector<int32_t>(6, 4), std::vector<float>(30), 0.5f, p};
  gpt2::save_reference_state(root / "reference_state/small", small, reference);
  // Reports begin with their largest part, the string table; the fuzzer gets a small one as well.
  for (const char* name : {"fp32_nvtx.ncu-rep", "fp32_basic.ncu-rep"})
    std::filesystem::copy_file(std::filesystem::path(INGEST_DATA) / name, root / "ncu_report" / name,
                               std::filesystem::copy_options::overwrite_existing);
  constexpr char kSmall[] =
      "NVR\0\2\0\0\0\x08\x07"                               // FileHeader{version 7}
      "\x09\0\0\0\x10\x01\x22\x03\x0a\x01m\x28\x0f"         // BlockHeader{1 result, strings {"m"}, 15 bytes}
      "\x0b\0\0\0\x32\x01k\x6a\x06\x08\0\x12\x02\x20\x05";  // KernelResult{function "k", metrics {name 0, value 5}}
  if (std::FILE* f = std::fopen((root / "ncu_report/small").c_str(), "wb")) {
    std::fwrite(kSmall, 1, sizeof kSmall - 1, f);
    std::fclose(f);
  }
  for (const char* name : {"fp32_nvtx.raw.base.csv", "mixed_nvtx.details.auto.csv"})
    std::filesystem::copy_file(std::filesystem::path(INGEST_DATA) / name, root / "ncu_csv" / name,
                               std::filesystem::copy_options::overwrite_existing);
  return 0;
}
