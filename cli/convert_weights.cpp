#include "cli/convert_weights.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/errors.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "gpt2/checkpoint.h"
#include "gpt2/data/hugging_face_weights.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

void check_out(const std::string& out, const std::string& input, std::string_view expected) {
  if (out.empty()) throw stepscope::InputError(fmt::format("--out: expected the name of the {} to write", expected));
  std::error_code absent;
  if (fs::equivalent(input, out, absent)) throw stepscope::InputError(fmt::format("--out {}: is the file to be read", out));
  stepscope::check_output(out, "--out");
}

}  // namespace

void import_safetensors(const std::string& path, const std::string& out, bool bf16, std::optional<int64_t> heads) {
  check_out(out, path, "checkpoint");
  const gpt2::MappedFile file(path);
  const gpt2::ImportedWeights weights = gpt2::import_weights(file.bytes(), path, heads);
  const auto precision = bf16 ? gpt2::CheckpointPrecision::bf16 : gpt2::CheckpointPrecision::fp32;
  gpt2::save_checkpoint(out, weights.config, weights.parameters, precision);
  fmt::print("{}: {} checkpoint, {}, {} parameters\n", out, bf16 ? "bf16" : "fp32", gpt2::describe(weights.config),
             weights.parameters.size());
  if (!heads)
    fmt::print("heads are not in {}: {} were taken, with 64 channels each as in every GPT-2; --heads N says otherwise\n", path,
               weights.config.heads);
  if (!weights.ignored.empty())
    fmt::print("{} tensors attn.bias and attn.masked_bias were ignored: they are constants\n", weights.ignored.size());
}

void export_safetensors(const std::string& checkpoint, const std::string& out) {
  check_out(out, checkpoint, "safetensors file");
  const gpt2::Checkpoint c = gpt2::load_checkpoint(checkpoint);
  gpt2::export_weights(out, c);
  fmt::print("{}: {}, {}, heads not in the file (n_head of config.json: {})\n", out,
             c.precision == gpt2::CheckpointPrecision::bf16 ? "BF16" : "F32", gpt2::describe(c.config), c.config.heads);
}

}  // namespace cli
