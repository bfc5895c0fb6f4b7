// The container in which Hugging Face keeps weights (github.com/huggingface/safetensors, "Format"):
//   uint64 length of the header, the header as JSON {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …},
//   then the tensors' bytes, row-major, without gaps; offsets count from the first byte behind the header.
// The reader trusts none of it: every error is stepscope::InputError naming the source, what was found and expected.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2 {

struct SafetensorEntry {
  std::string dtype;  // "F32", "BF16", "U8", …: one of the format's types of whole bytes
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // in the file; no alignment is promised
};

// By name. The spans point into `file`, which must outlive them. Refused: a header that is cut, longer than 100 MB, no JSON, nested deeper
// than a tensor is, or that names a tensor or a field twice; offsets outside the file, overlapping, with gaps, or of a length that the
// shape does not have; a type that is not in the format.
using Safetensors = std::map<std::string, SafetensorEntry, std::less<>>;
Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& source);

// Widens `entry` (F32, BF16 or F16) exactly, bit for bit also for NaN; `out` has the product of the shape.
// Throws stepscope::InputError "SOURCE: tensor NAME …" for another type.
void widen_tensor(const SafetensorEntry& entry, std::span<float> out, const std::string& source, std::string_view name);
float half_to_float(uint16_t half);

// "[3, 4]"
std::string shape_text(std::span<const int64_t> shape);

}  // namespace gpt2
