#include "gpt2/prepare/convert_weights.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/errors.h"
#include "base/mapped_file.h"
#include "base/named_files.h"
#include "base/output_file.h"
#include "gpt2/checkpoint.h"
#include "gpt2/data/hugging_face_weights.h"

namespace gpt2 {
namespace {

namespace fs = std::filesystem;

void check_named(const std::string& out, std::string_view expected) {
  if (out.empty()) throw stepscope::InputError(fmt::format("--out: expected the name of the {} to write", expected));
}

}  // namespace

void import_safetensors(const std::string& path, const std::string& out, bool bf16, std::optional<int64_t> heads) {
  check_named(out, "checkpoint");
  const StoredWeights stored = open_weights(path);
  stepscope::NamedFiles inputs{{"--import", stored.source}, {"--import", stored.config ? stored.config->source : ""}};
  for (const MappedFile& file : stored.files) inputs.emplace_back("--import", file.path());
  stepscope::check_files_differ(inputs, {{"--out", out}});
  stepscope::check_output(out, "--out");
  const ImportedWeights weights = import_weights(stored, heads);
  const auto precision = bf16 ? CheckpointPrecision::bf16 : CheckpointPrecision::fp32;
  save_checkpoint(out, weights.config, weights.parameters, precision);
  fmt::print("{}: {} checkpoint, {}, {} parameters\n", out, bf16 ? "bf16" : "fp32", describe(weights.config), weights.parameters.size());
  if (!heads && !stored.config)
    fmt::print("heads are not in {}: {} were taken, with 64 channels each as in every GPT-2; --heads N says otherwise\n", stored.source,
               weights.config.heads);
  if (!weights.ignored.empty())
    fmt::print("{} tensors attn.bias and attn.masked_bias were ignored: they are constants\n", weights.ignored.size());
}

void export_safetensors(const std::string& checkpoint, const std::string& out) {
  check_named(out, "folder, or of the FILE.safetensors,");
  stepscope::check_files_differ({{"--export", checkpoint}}, {{"--out", out}});
  const bool file = out.ends_with(".safetensors");
  std::error_code absent;
  if (!file && fs::exists(out, absent) && !fs::is_directory(out, absent))
    throw stepscope::InputError(fmt::format("--out {}: is a file, expected a folder or a name that ends in .safetensors", out));
  if (file) stepscope::check_output(out, "--out");
  const Checkpoint c = load_checkpoint(checkpoint);
  file ? export_weights(out, c) : export_model(out, c);
  const fs::path weights = file ? fs::path(out) : fs::path(out) / kWeightsName;
  fmt::print("{}: {}, {}\n", weights.string(), c.precision == CheckpointPrecision::bf16 ? "BF16" : "F32", describe(c.config));
  if (file) {
    fmt::print("heads are not in the file (n_head of config.json: {}); --out FOLDER writes config.json as well, for from_pretrained\n",
               c.config.heads);
  } else {
    fmt::print("{}: for from_pretrained of transformers\n", (fs::path(out) / kConfigName).string());
  }
}

}  // namespace gpt2
