#include "gpt2/data/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/errors.h"
#include "base/json_read.h"
#include "base/mapped_file.h"

namespace gpt2 {
namespace {

using Json = nlohmann::json;

// The limit of the format's own reader.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::array<std::pair<std::string_view, uint64_t>, 15> kTypes{{{"BOOL", 1},
                                                                        {"U8", 1},
                                                                        {"I8", 1},
                                                                        {"F8_E5M2", 1},
                                                                        {"F8_E4M3", 1},
                                                                        {"I16", 2},
                                                                        {"U16", 2},
                                                                        {"F16", 2},
                                                                        {"BF16", 2},
                                                                        {"I32", 4},
                                                                        {"U32", 4},
                                                                        {"F32", 4},
                                                                        {"I64", 8},
                                                                        {"U64", 8},
                                                                        {"F64", 8}}};

// The library keeps one of two equal keys without a word, and nests as deep as the text does: the callback sees both before they count.
Json parse_header(std::string_view text, const ByteReader& reader) {
  std::array<std::set<std::string>, 3> keys;
  const auto see = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth > 2) reader.fail("header: nested deeper than a tensor's shape");
      if (event == Json::parse_event_t::object_start) keys[static_cast<size_t>(depth)].clear();
    }
    if (event == Json::parse_event_t::key && !keys[static_cast<size_t>(depth - 1)].insert(value.get<std::string>()).second)
      reader.fail(fmt::format("header: '{}' stands there twice", value.get<std::string>()));
    return true;
  };
  try {
    Json header = Json::parse(text, see);
    if (!header.is_object()) reader.fail("header: expected a JSON object of tensors");
    return header;
  } catch (const Json::exception&) {
    reader.fail("header is no JSON: " + stepscope::why_no_object_in_line(text, reader.source()));
  }
}

struct Placed {
  uint64_t begin, end;
  std::string name;
};

const Json& field(const Json& row, const char* key, const std::string& name, const ByteReader& reader) {
  if (!row.is_object()) reader.fail(fmt::format("tensor {}: expected an object with dtype, shape and data_offsets", name));
  const auto at = row.find(key);
  if (at == row.end()) reader.fail(fmt::format("tensor {}: has no {}", name, key));
  return *at;
}

uint64_t type_width(const Json& value, const std::string& name, const ByteReader& reader) {
  if (value.is_string()) {
    const auto& word = value.get_ref<const std::string&>();
    for (const auto& [type, width] : kTypes)
      if (type == word) return width;
  }
  reader.fail(fmt::format("tensor {}: dtype {}, expected one of the format's, such as \"F32\", \"BF16\" or \"F16\"", name,
                          stepscope::shown_json(value)));
}

// Bytes of the tensor; the product may not pass 2^62.
uint64_t read_shape(const Json& value, uint64_t width, std::vector<int64_t>& shape, const std::string& name, const ByteReader& reader) {
  if (!value.is_array())
    reader.fail(fmt::format("tensor {}: shape {}, expected a list of whole numbers", name, stepscope::shown_json(value)));
  uint64_t bytes = width;
  for (const Json& dimension : value) {
    if (!dimension.is_number_unsigned())
      reader.fail(fmt::format("tensor {}: shape {}, expected a list of whole numbers", name, stepscope::shown_json(value)));
    const uint64_t n = dimension.get<uint64_t>();
    if (n != 0 && bytes > (uint64_t{1} << 62) / n)
      reader.fail(fmt::format("tensor {}: shape {} is absurdly large", name, stepscope::shown_json(value)));
    bytes *= n;
    shape.push_back(static_cast<int64_t>(n));
  }
  return bytes;
}

std::pair<uint64_t, uint64_t> read_offsets(const Json& value, uint64_t data_bytes, const std::string& name, const ByteReader& reader) {
  if (!value.is_array() || value.size() != 2 || !value[0].is_number_unsigned() || !value[1].is_number_unsigned())
    reader.fail(fmt::format("tensor {}: data_offsets {}, expected [begin, end]", name, stepscope::shown_json(value)));
  const uint64_t begin = value[0].get<uint64_t>(), end = value[1].get<uint64_t>();
  if (begin > end) reader.fail(fmt::format("tensor {}: data_offsets {} end before they begin", name, stepscope::shown_json(value)));
  if (end > data_bytes)
    reader.fail(fmt::format("truncated: tensor {} has data_offsets {}, and {} bytes follow the header", name, stepscope::shown_json(value),
                            data_bytes));
  return {begin, end};
}

void check_no_gaps(std::vector<Placed> placed, uint64_t data_bytes, const ByteReader& reader) {
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t at = 0;
  std::string_view before = "the header";
  for (const Placed& p : placed) {
    if (p.begin < at) reader.fail(fmt::format("tensors {} and {} overlap", before, p.name));
    if (p.begin > at) reader.fail(fmt::format("{} bytes between {} and tensor {} belong to no tensor", p.begin - at, before, p.name));
    at = p.end;
    before = p.name;
  }
  if (at != data_bytes) reader.fail(fmt::format("{} bytes behind the last tensor belong to none", data_bytes - at));
}

}  // namespace

Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& source) {
  ByteReader reader(file, source);
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (file.size() >= kPointer.size() && std::memcmp(file.data(), kPointer.data(), kPointer.size()) == 0)
    reader.fail("a pointer of Git LFS, expected the file itself: `git lfs pull` fetches it");
  const auto length = reader.read<uint64_t>("length of the header");
  if (length > kMaxHeaderBytes)
    reader.fail(fmt::format("header of {} bytes, expected at most {}: not a safetensors file", length, kMaxHeaderBytes));
  const auto raw = reader.take(length, "header");
  const Json header = parse_header({reinterpret_cast<const char*>(raw.data()), raw.size()}, reader);
  const uint64_t data_bytes = reader.remaining();
  const auto data = reader.take(data_bytes, "tensors");
  Safetensors tensors;
  std::vector<Placed> placed;
  for (const auto& [name, row] : header.items()) {
    if (name == "__metadata__") continue;
    SafetensorEntry entry;
    const Json& type = field(row, "dtype", name, reader);
    const uint64_t width = type_width(type, name, reader);
    const uint64_t bytes = read_shape(field(row, "shape", name, reader), width, entry.shape, name, reader);
    const auto [begin, end] = read_offsets(field(row, "data_offsets", name, reader), data_bytes, name, reader);
    if (end - begin != bytes)
      reader.fail(
          fmt::format("tensor {}: {} bytes, and {} {} has {}", name, end - begin, type.get<std::string>(), shape_text(entry.shape), bytes));
    entry.dtype = type.get<std::string>();
    entry.bytes = data.subspan(begin, bytes);
    placed.push_back({begin, end, name});
    tensors.emplace(name, std::move(entry));
  }
  check_no_gaps(std::move(placed), data_bytes, reader);
  return tensors;
}

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal: a multiple of 2^-24
    const uint32_t magnitude = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f);
    return std::bit_cast<float>(sign | magnitude);
  }
  const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

void widen_tensor(const SafetensorEntry& entry, std::span<float> out, const std::string& source, std::string_view name) {
  const std::byte* from = entry.bytes.data();
  if (entry.dtype == "F32") {
    if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  const bool bf16 = entry.dtype == "BF16";
  if (!bf16 && entry.dtype != "F16")
    throw stepscope::InputError(fmt::format("{}: tensor {} is {}, expected F32, BF16 or F16", source, name, entry.dtype));
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    out[i] = bf16 ? std::bit_cast<float>(static_cast<uint32_t>(bits) << 16) : half_to_float(bits);
  }
}

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace gpt2
