// A safetensors file made for tests, by a writer that shares nothing with gpt2/data, and a GPT-2 in it whose values name their place.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <map>

#include "tests/gpt2/files.h"

namespace gpt2::testing {

struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

// Any text as header, then `data`.
inline std::vector<std::byte> file_of(const std::string& header, const std::vector<std::byte>& data) {
  const uint64_t length = header.size();
  std::vector<std::byte> out(8 + header.size());
  std::memcpy(out.data(), &length, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

// Tensors by name, without spaces, the header padded to 8 bytes: the form of the safetensors library.
inline std::vector<std::byte> file_of(const RawTensors& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::vector<std::byte> data;
  for (const auto& [name, t] : tensors) {
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, t.dtype, fmt::join(t.shape, ","),
                          data.size(), data.size() + t.bytes.size());
    data.insert(data.end(), t.bytes.begin(), t.bytes.end());
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  return file_of(header, data);
}

// 3 positions, 5 words padded to 128, 2 layers, 2 heads, 4 channels.
inline ModelConfig named_config() { return {3, 5, 128, 2, 2, 4}; }

// The shapes of Hugging Face's GPT-2, written out once more.
inline const std::map<std::string, std::vector<int64_t>>& named_shapes() {
  static const auto shapes = [] {
    std::map<std::string, std::vector<int64_t>> s{{"wte.weight", {5, 4}}, {"wpe.weight", {3, 4}}, {"ln_f.weight", {4}}, {"ln_f.bias", {4}}};
    for (const std::string h : {"h.0.", "h.1."}) {
      for (const char* vector : {"ln_1.weight", "ln_1.bias", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_proj.bias"})
        s[h + vector] = {4};
      s[h + "attn.c_attn.weight"] = {4, 12};
      s[h + "attn.c_attn.bias"] = {12};
      s[h + "attn.c_proj.weight"] = {4, 4};
      s[h + "mlp.c_fc.weight"] = {4, 16};
      s[h + "mlp.c_fc.bias"] = {16};
      s[h + "mlp.c_proj.weight"] = {16, 4};
    }
    return s;
  }();
  return shapes;
}

// One value for each (tensor, row, column) of Hugging Face's file; a vector has row 0.
inline float named_value(const std::string& name, int64_t row, int64_t column) {
  const auto at = std::distance(named_shapes().begin(), named_shapes().find(name));
  return static_cast<float>((at + 1) * 1024 + row * 32 + column);
}

inline RawTensors named_tensors(const std::string& prefix = "") {
  RawTensors out;
  for (const auto& [name, shape] : named_shapes()) {
    std::vector<float> values;
    const int64_t rows = shape.size() == 2 ? shape[0] : 1;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < shape.back(); ++c) values.push_back(named_value(name, r, c));
    out[prefix + name] = {"F32", shape, bytes_of(values)};
  }
  return out;
}

}  // namespace gpt2::testing
