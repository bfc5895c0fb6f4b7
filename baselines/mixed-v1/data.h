// Everything this program reads and writes, all in llm.c's formats: a header of 256 int32, then data.
//   tokens      magic 20240520, version 1, [2] count;                        then uint16 tokens
//   model       magic 20240326, version 3, [2..7] maxT, V, L, NH, C, Vp;      then fp32 parameters in the
//   order of the tensor table state       magic 20240327, version 2, [2] B, [3] T;  then x, y int32 (B,T),
//   logits fp32 (B,T,V), loss fp32, gradients fp32
// A header is believed only after the length of the file agrees with it.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "config.h"

namespace baseline {

inline constexpr int32_t kTokensMagic = 20240520;
inline constexpr int32_t kModelMagic = 20240326;
inline constexpr int32_t kStateMagic = 20240327;
inline constexpr int64_t kHeaderBytes = 256 * 4;
using Header = std::array<int32_t, 256>;

// Opens a file for reading and fetches its header.
inline std::ifstream open_with_header(const std::string& path, Header& header, int64_t& bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw InputError(path + ": there is no such file");
  bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path + ": the file cannot be opened for reading");
  if (bytes < kHeaderBytes || !file.read(reinterpret_cast<char*>(header.data()), kHeaderBytes)) {
    throw InputError(path + ": " + std::to_string(bytes) + " bytes are too short for a header of " +
                     std::to_string(kHeaderBytes));
  }
  return file;
}

inline void read_all(std::ifstream& file, void* to, int64_t bytes, const std::string& path) {
  if (!file.read(static_cast<char*>(to), bytes))
    throw InputError(path + ": reading failed before the end of the file");
}

inline void expect_size(const std::string& path, int64_t found, int64_t expected) {
  if (found == expected) return;
  throw InputError(path + ": the file has " + std::to_string(found) + " bytes, its header means " +
                   std::to_string(expected));
}

// ---- models -------------------------------------------------------------------------------------

inline Config read_model_config(const std::string& path) {
  Header h;
  int64_t bytes = 0;
  open_with_header(path, h, bytes);
  if (h[0] != kModelMagic)
    throw InputError(path + ": the magic number is " + std::to_string(h[0]) + ", a model has 20240326");
  if (h[1] != 3)
    throw InputError(path + ": version " + std::to_string(h[1]) + "; only version 3 (fp32) is read here");
  Config c;
  c.max_seq_len = h[2], c.vocab = h[3], c.layers = h[4], c.heads = h[5], c.channels = h[6],
  c.padded_vocab = h[7];
  check_config(c, path);
  expect_size(path, bytes, kHeaderBytes + 4 * TensorTable(c).total);
  return c;
}

inline std::vector<float> read_model_parameters(const std::string& path, const Config& config) {
  Header h;
  int64_t bytes = 0;
  std::ifstream file = open_with_header(path, h, bytes);
  std::vector<float> values(static_cast<size_t>(TensorTable(config).total));
  read_all(file, values.data(), static_cast<int64_t>(values.size()) * 4, path);
  return values;
}

// A file that appears under its name only when it is whole: written beside it, then renamed.
class OutputFile {
 public:
  explicit OutputFile(std::string path)
      : path_(std::move(path)), file_(path_ + ".part", std::ios::binary | std::ios::trunc) {
    if (!file_) throw InputError(path_ + ": the file cannot be created");
  }
  void write(const void* from, int64_t bytes) { file_.write(static_cast<const char*>(from), bytes); }
  void finish() {
    file_.close();
    std::error_code error;
    if (file_) std::filesystem::rename(path_ + ".part", path_, error);
    if (!file_ || error) {
      std::filesystem::remove(path_ + ".part", error);
      throw InputError(path_ + ": writing failed (is the disk full?)");
    }
  }

 private:
  std::string path_;
  std::ofstream file_;
};

inline void write_model(const std::string& path, const Config& c, const std::vector<float>& values) {
  Header h{};
  const int64_t fields[] = {kModelMagic, 3,       c.max_seq_len, c.vocab,
                            c.layers,    c.heads, c.channels,    c.padded_vocab};
  for (size_t i = 0; i < std::size(fields); ++i) h[i] = static_cast<int32_t>(fields[i]);
  OutputFile file(path);
  file.write(h.data(), kHeaderBytes);
  file.write(values.data(), static_cast<int64_t>(values.size()) * 4);
  file.finish();
}

// ---- batches ------------------------------------------------------------------------------------

struct Batch {
  std::vector<int32_t> inputs;   // (B, T)
  std::vector<int32_t> targets;  // (B, T): the token after each input
};

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual void next(Batch& batch) = 0;
};

inline void check_token(int64_t token, int64_t vocab, int64_t position, const std::string& source) {
  if (token >= 0 && token < vocab) return;
  throw InputError(source + ": token " + std::to_string(token) + " at position " + std::to_string(position) +
                   " is outside the model's vocabulary of " + std::to_string(vocab));
}

// Endless made-up text: a token follows its predecessor by a fixed rule half of the time, and is drawn with
// frequency 1/rank otherwise. Real text has such frequencies (top token about 6%), and the rule is something
// a model can learn.
class SyntheticTokens : public TokenSource {
 public:
  SyntheticTokens(int64_t vocab, int64_t B, int64_t T, uint64_t seed)
      : vocab_(vocab), B_(B), T_(T), random_{seed ^ 0x5eedull} {}
  void next(Batch& batch) override {
    batch.inputs.resize(static_cast<size_t>(B_ * T_));
    batch.targets.resize(static_cast<size_t>(B_ * T_));
    for (int64_t i = 0; i < B_ * T_; ++i) {
      batch.inputs[i] = static_cast<int32_t>(token_);
      token_ = follow(token_);
      batch.targets[i] = static_cast<int32_t>(token_);
    }
  }

 private:
  int64_t follow(int64_t token) {
    if (random_.uniform() < 0.5)
      token = static_cast<int64_t>(Random{static_cast<uint64_t>(token)}.bits() % 4096);
    else
      token =
          static_cast<int64_t>(std::exp(random_.uniform() * std::log(static_cast<double>(vocab_ + 1)))) - 1;
    return std::clamp<int64_t>(token % vocab_, 0, vocab_ - 1);
  }
  int64_t vocab_, B_, T_;
  Random random_;
  int64_t token_ = 0;
};

// Batches of B*T tokens, one after the other through the file, then again from its start.
class ShardTokens : public TokenSource {
 public:
  ShardTokens(const std::string& path, int64_t vocab, int64_t B, int64_t T) : B_(B), T_(T) {
    Header h;
    int64_t bytes = 0;
    std::ifstream file = open_with_header(path, h, bytes);
    if (h[0] != kTokensMagic)
      throw InputError(path + ": the magic number is " + std::to_string(h[0]) +
                       ", token files have 20240520");
    if (h[1] != 1)
      throw InputError(path + ": version " + std::to_string(h[1]) +
                       "; only version 1 (uint16 tokens) is read here");
    if (h[2] < 0) throw InputError(path + ": the header counts " + std::to_string(h[2]) + " tokens");
    expect_size(path, bytes, kHeaderBytes + 2 * static_cast<int64_t>(h[2]));
    if (h[2] < B * T + 1) {
      throw InputError(path + ": " + std::to_string(h[2]) + " tokens are fewer than one batch needs (" +
                       std::to_string(B) + " x " + std::to_string(T) + " + 1)");
    }
    tokens_.resize(static_cast<size_t>(h[2]));
    read_all(file, tokens_.data(), 2 * static_cast<int64_t>(h[2]), path);
    for (size_t i = 0; i < tokens_.size(); ++i) check_token(tokens_[i], vocab, static_cast<int64_t>(i), path);
  }
  void next(Batch& batch) override {
    const int64_t N = B_ * T_;
    if (position_ + N + 1 > static_cast<int64_t>(tokens_.size())) position_ = 0;
    const uint16_t* from = tokens_.data() + position_;
    batch.inputs.assign(from, from + N);
    batch.targets.assign(from + 1, from + N + 1);
    position_ += N;
  }

 private:
  int64_t B_, T_;
  std::vector<uint16_t> tokens_;
  int64_t position_ = 0;
};

// The one batch of a state file, every time: to be compared with the logits, loss and gradients that the file
// holds.
class StateTokens : public TokenSource {
 public:
  StateTokens(const std::string& path, const Config& config, int64_t B, int64_t T) {
    Header h;
    int64_t bytes = 0;
    std::ifstream file = open_with_header(path, h, bytes);
    if (h[1] != 2)
      throw InputError(path + ": version " + std::to_string(h[1]) + "; only version 2 is read here");
    if (h[2] != B || h[3] != T) {
      throw InputError(path + ": holds a batch of " + std::to_string(h[2]) + " x " + std::to_string(h[3]) +
                       " tokens; ask for it with --batch-size and --seq-len");
    }
    const int64_t N = B * T;
    expect_size(path, bytes, kHeaderBytes + 4 * (2 * N + N * config.vocab + 1 + TensorTable(config).total));
    batch_.inputs.resize(static_cast<size_t>(N));
    batch_.targets.resize(static_cast<size_t>(N));
    read_all(file, batch_.inputs.data(), 4 * N, path);
    read_all(file, batch_.targets.data(), 4 * N, path);
    for (int64_t i = 0; i < N; ++i) {
      check_token(batch_.inputs[i], config.vocab, i, path);
      check_token(batch_.targets[i], config.vocab, i, path);
    }
  }
  void next(Batch& batch) override { batch = batch_; }

 private:
  Batch batch_;
};

inline std::unique_ptr<TokenSource> open_tokens(const std::string& data, const Config& config, int64_t B,
                                                int64_t T, uint64_t seed) {
  if (data == "synthetic") return std::make_unique<SyntheticTokens>(config.vocab, B, T, seed);
  Header h;
  int64_t bytes = 0;
  open_with_header(data, h, bytes);
  if (h[0] == kStateMagic) return std::make_unique<StateTokens>(data, config, B, T);
  return std::make_unique<ShardTokens>(data, config.vocab, B, T);
}

// The positions of a batch grouped by token, ascending inside each group: what a deterministic embedding
// gradient sums over.
struct TokenGroups {
  std::vector<int32_t> positions;  // (N), sorted by token, then by position
  std::vector<int32_t> tokens;     // (G) each distinct token
  std::vector<int32_t> begins;     // (G + 1) where its positions begin
  std::vector<int32_t> counts_;    // (V) scratch

  void build(const std::vector<int32_t>& inputs, int64_t vocab) {
    counts_.assign(static_cast<size_t>(vocab), 0);
    for (int32_t token : inputs) ++counts_[token];
    tokens.clear();
    begins.assign(1, 0);
    for (int64_t token = 0; token < vocab; ++token) {
      if (counts_[token] == 0) continue;
      const int32_t begin = begins.back();
      tokens.push_back(static_cast<int32_t>(token));
      begins.push_back(begin + counts_[token]);
      counts_[token] = begin;  // from now on: where the token's next position goes
    }
    positions.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) positions[counts_[inputs[i]]++] = static_cast<int32_t>(i);
  }
};

}  // namespace baseline
