#include "cli/convert_weights.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/errors.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "cli/named_files.h"
#include "gpt2/checkpoint.h"
#include "gpt2/data/hugging_face_weights.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

void check_named(const std::string& out, std::string_view expected) {
  if (out.empty()) throw stepscope::InputError(fmt::format("--out: expected the name of the {} to write", expected));
}

}  // namespace

void import_safetensors(const std::string& path, const std::string& out, bool bf16, std::optional<int64_t> heads) {
  check_named(out, "checkpoint");
  const gpt2::StoredWeights stored = gpt2::open_weights(path);
  NamedFiles inputs{{"--import", stored.source}, {"--import", stored.config ? stored.config->source : ""}};
  for (const gpt2::MappedFile& file : stored.files) inputs.emplace_back("--import", file.path());
  check_files_differ(inputs, {{"--out", out}});
  stepscope::check_output(out, "--out");
  const gpt2::ImportedWeights weights = gpt2::import_weights(stored, heads);
  const auto precision = bf16 ? gpt2::CheckpointPrecision::bf16 : gpt2::CheckpointPrecision::fp32;
  gpt2::save_checkpoint(out, weights.config, weights.parameters, precision);
  fmt::print("{}: {} checkpoint, {}, {} parameters\n", out, bf16 ? "bf16" : "fp32", gpt2::describe(weights.config),
             weights.parameters.size());
  if (!heads && !stored.config)
    fmt::print("heads are not in {}: {} were taken, with 64 channels each as in every GPT-2; --heads N says otherwise\n", stored.source,
               weights.config.heads);
  if (!weights.ignored.empty())
    fmt::print("{} tensors attn.bias and attn.masked_bias were ignored: they are constants\n", weights.ignored.size());
}

void export_safetensors(const std::string& checkpoint, const std::string& out) {
  check_named(out, "folder, or of the FILE.safetensors,");
  check_files_differ({{"--export", checkpoint}}, {{"--out", out}});
  const bool file = out.ends_with(".safetensors");
  std::error_code absent;
  if (!file && fs::exists(out, absent) && !fs::is_directory(out, absent))
    throw stepscope::InputError(fmt::format("--out {}: is a file, expected a folder or a name that ends in .safetensors", out));
  if (file) stepscope::check_output(out, "--out");
  const gpt2::Checkpoint c = gpt2::load_checkpoint(checkpoint);
  file ? gpt2::export_weights(out, c) : gpt2::export_model(out, c);
  const fs::path weights = file ? fs::path(out) : fs::path(out) / gpt2::kWeightsName;
  fmt::print("{}: {}, {}\n", weights.string(), c.precision == gpt2::CheckpointPrecision::bf16 ? "BF16" : "F32", gpt2::describe(c.config));
  if (file) {
    fmt::print("heads are not in the file (n_head of config.json: {}); --out FOLDER writes config.json as well, for from_pretrained\n",
               c.config.heads);
  } else {
    fmt::print("{}: for from_pretrained of transformers\n", (fs::path(out) / gpt2::kConfigName).string());
  }
}

}  // namespace cli
