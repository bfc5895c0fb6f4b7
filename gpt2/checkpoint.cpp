#include "gpt2/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/atomic_file.h"
#include "base/checksum.h"
#include "base/errors.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "gpt2/tensor_table.h"
#include "gpt2/training_state.h"

namespace gpt2 {
namespace {

constexpr int32_t kStateVersion = 2;

struct CheckpointHeader {
  ModelConfig config;
  CheckpointPrecision precision;
  int64_t parameters;
};

CheckpointHeader read_header(ByteReader& reader) {
  const LlmcHeader h = read_llmc_header(reader, kLlmcCheckpoint, "checkpoint");
  const int32_t version = h[1];
  if (version != 3 && version != 5) reader.fail(fmt::format("checkpoint version {}, expected 3 (fp32) or 5 (bf16)", version));
  const ModelConfig config{h[2], h[3], h[7], h[4], h[5], h[6]};
  check_config(config, reader.source());
  const int64_t total = tensor_layout(config).total;
  const uint64_t width = version == 3 ? 4 : 2;
  reader.expect_size(kLlmcHeaderBytes + width * static_cast<uint64_t>(total),
                     fmt::format("header and {} {} parameters: {}", total, version == 3 ? "fp32" : "bf16", describe(config)));
  return {config, static_cast<CheckpointPrecision>(version), total};
}

ReferenceStateShape read_state_header(ByteReader& reader) {
  const LlmcHeader h = read_llmc_header(reader, kLlmcState, "reference state");
  if (h[1] != kStateVersion) reader.fail(fmt::format("reference state version {}, expected {}", h[1], kStateVersion));
  if (h[2] < 1) reader.fail(fmt::format("batch size {}, expected at least 1", h[2]));
  if (h[3] < 1) reader.fail(fmt::format("sequence length {}, expected at least 1", h[3]));
  return {h[2], h[3]};
}

float widen(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

uint16_t round_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Rounding a NaN up could carry into infinity or lose its payload's high bits: keep it quiet instead.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Writes and sums in one go.
struct SummedFile {
  explicit SummedFile(const std::filesystem::path& path) : file(path) {}
  void write(std::span<const std::byte> bytes) {
    file.write(bytes.data(), bytes.size());
    sum.update(bytes);
  }
  AtomicFile file;
  Checksum sum;
};

// The weights that training left in a folder: one of a step, or the run's with all of them. Empty for any other folder.
std::filesystem::path trained_weights(const std::filesystem::path& folder) {
  const std::vector<int64_t> steps = saved_steps(folder);
  const std::filesystem::path file = (steps.empty() ? folder : step_folder(folder, steps.back())) / "model.bin";
  std::error_code absent;
  return std::filesystem::is_regular_file(file, absent) ? file : std::filesystem::path();
}

MappedFile open_checkpoint(const std::filesystem::path& path) {
  refuse_another_form(path);
  MappedFile file(path);
  if (begins_as_training_state(file.bytes()))
    throw stepscope::InputError(fmt::format("{}: a training state, expected a checkpoint: the weights are in {}", path.string(),
                                            (path.parent_path() / "model.bin").string()));
  return file;
}

void require_size(size_t found, int64_t expected, std::string_view what, const std::filesystem::path& path) {
  if (static_cast<int64_t>(found) != expected)
    throw std::logic_error(fmt::format("{}: {} holds {} values, the model's shape says {}", path.string(), what, found, expected));
}

}  // namespace

void refuse_another_form(const std::filesystem::path& path) {
  std::error_code absent;
  const bool folder = std::filesystem::is_directory(path, absent);
  if (const auto weights = folder ? trained_weights(path) : std::filesystem::path(); !weights.empty())
    throw stepscope::InputError(fmt::format("{}: a folder, expected a checkpoint: its weights are {}", path.string(), weights.string()));
  if (folder || path.extension() == ".safetensors")
    throw stepscope::InputError(
        fmt::format("{}: {}, expected a checkpoint; `stepscope data --import {} --out FILE.bin` makes one of Hugging Face's GPT-2",
                    path.string(), folder ? "a folder" : "a safetensors file", path.string()));
}

Checkpoint parse_checkpoint(std::span<const std::byte> bytes, const std::string& source) {
  ByteReader reader(bytes, source);
  const CheckpointHeader header = read_header(reader);
  Checkpoint c{header.config, header.precision, {}};
  c.parameters.resize(static_cast<size_t>(header.parameters));
  if (c.precision == CheckpointPrecision::fp32) {
    reader.read_into(std::span<float>(c.parameters), "parameters");
  } else {
    const auto raw = reader.take(2 * static_cast<uint64_t>(header.parameters), "parameters");
    for (size_t i = 0; i < c.parameters.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, raw.data() + 2 * i, 2);
      c.parameters[i] = widen(bits);
    }
  }
  reader.expect_end();
  return c;
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  const MappedFile file = open_checkpoint(path);
  return parse_checkpoint(file.bytes(), file.path());
}

ModelConfig checkpoint_config(const std::filesystem::path& path) {
  const MappedFile file = open_checkpoint(path);
  ByteReader reader(file.bytes(), file.path());
  return read_header(reader).config;
}

uint64_t save_checkpoint(const std::filesystem::path& path, const ModelConfig& config, std::span<const float> parameters,
                         CheckpointPrecision precision) {
  check_config(config, path.string());
  require_size(parameters.size(), tensor_layout(config).total, "parameters", path);
  LlmcHeader h{};
  h[0] = kLlmcCheckpoint;
  h[1] = static_cast<int32_t>(precision);
  const std::array<int64_t, 6> shape{config.max_seq_len, config.vocab_size, config.layers,
                                     config.heads,       config.channels,   config.padded_vocab};
  for (size_t i = 0; i < shape.size(); ++i) h[2 + i] = static_cast<int32_t>(shape[i]);
  SummedFile out(stepscope::output_place(path));
  out.write(std::as_bytes(std::span(h)));
  if (precision == CheckpointPrecision::fp32) {
    out.write(std::as_bytes(parameters));
  } else {
    std::vector<uint16_t> chunk;
    for (size_t at = 0; at < parameters.size(); at += chunk.size()) {
      chunk.resize(std::min<size_t>(parameters.size() - at, size_t{1} << 20));
      std::transform(parameters.begin() + static_cast<ptrdiff_t>(at), parameters.begin() + static_cast<ptrdiff_t>(at + chunk.size()),
                     chunk.begin(), round_to_bf16);
      out.write(std::as_bytes(std::span(chunk)));
    }
  }
  out.file.commit();
  return out.sum.value();
}

ReferenceStateShape reference_state_shape(std::span<const std::byte> bytes, const std::string& source) {
  ByteReader reader(bytes, source);
  const ReferenceStateShape shape = read_state_header(reader);
  const uint64_t tokens = static_cast<uint64_t>(shape.batch_size) * static_cast<uint64_t>(shape.seq_len);
  reader.take(8 * tokens, "inputs and targets");
  return shape;
}

ReferenceState parse_reference_state(std::span<const std::byte> bytes, const ModelConfig& config, const std::string& source) {
  ByteReader reader(bytes, source);
  const auto [B, T] = read_state_header(reader);
  if (T > config.max_seq_len) reader.fail(fmt::format("sequence length {}, expected 1 to {} (the model's)", T, config.max_seq_len));
  // B < 2^31, T <= 2^24, V <= 2^24: the logits' count can pass 2^64, so it is bounded by the file before it
  // is multiplied out.
  const int64_t tokens = B * T, total = tensor_layout(config).total;
  const double expected_bytes =
      4.0 * static_cast<double>(tokens) * static_cast<double>(config.vocab_size + 2) + 4.0 * static_cast<double>(total) + 1028.0;
  if (expected_bytes > 2.0 * static_cast<double>(bytes.size())) {
    reader.fail(
        fmt::format("truncated: {} bytes, expected about {:.4g} (B={}, T={}, {})", bytes.size(), expected_bytes, B, T, describe(config)));
  }
  const uint64_t logits = static_cast<uint64_t>(tokens) * static_cast<uint64_t>(config.vocab_size);
  reader.expect_size(kLlmcHeaderBytes + 4 * (2 * static_cast<uint64_t>(tokens) + logits + 1 + static_cast<uint64_t>(total)),
                     fmt::format("B={}, T={}, {}", B, T, describe(config)));
  ReferenceState s;
  s.batch_size = B;
  s.seq_len = T;
  s.inputs.resize(static_cast<size_t>(tokens));
  s.targets.resize(static_cast<size_t>(tokens));
  s.logits.resize(logits);
  s.gradients.resize(static_cast<size_t>(total));
  reader.read_into(std::span(s.inputs), "inputs");
  reader.read_into(std::span(s.targets), "targets");
  for (const auto& [ids, name] : {std::pair{&s.inputs, "input"}, std::pair{&s.targets, "target"}}) {
    for (size_t i = 0; i < ids->size(); ++i) {
      if ((*ids)[i] < 0 || (*ids)[i] >= config.vocab_size)
        reader.fail(fmt::format("{} token {} is {}, expected 0 to {}", name, i, (*ids)[i], config.vocab_size - 1));
    }
  }
  reader.read_into(std::span(s.logits), "logits");
  s.loss = reader.read<float>("loss");
  reader.read_into(std::span(s.gradients), "gradients");
  reader.expect_end();
  return s;
}

ReferenceState load_reference_state(const std::filesystem::path& path, const ModelConfig& config) {
  const MappedFile file(path);
  return parse_reference_state(file.bytes(), config, file.path());
}

void save_reference_state(const std::filesystem::path& path, const ModelConfig& config, const ReferenceState& s) {
  check_config(config, path.string());
  const int64_t tokens = s.batch_size * s.seq_len;
  require_size(s.inputs.size(), tokens, "inputs", path);
  require_size(s.targets.size(), tokens, "targets", path);
  require_size(s.logits.size(), tokens * config.vocab_size, "logits", path);
  require_size(s.gradients.size(), tensor_layout(config).total, "gradients", path);
  LlmcHeader h{};
  h[0] = kLlmcState;
  h[1] = kStateVersion;
  h[2] = static_cast<int32_t>(s.batch_size);
  h[3] = static_cast<int32_t>(s.seq_len);
  AtomicFile out(stepscope::output_place(path));
  for (const std::span<const std::byte> part : std::initializer_list<std::span<const std::byte>>{
           std::as_bytes(std::span(h)), std::as_bytes(std::span(s.inputs)), std::as_bytes(std::span(s.targets)),
           std::as_bytes(std::span(s.logits)), std::as_bytes(std::span(&s.loss, 1)), std::as_bytes(std::span(s.gradients))}) {
    out.write(part.data(), part.size());
  }
  out.commit();
}

}  // namespace gpt2
