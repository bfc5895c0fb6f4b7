// Memory of the op cases, on the host or on the device, and the values in it. The same code makes inputs and
// answers in either space: a test without a device runs it on the host, the gate runs it where the kernels
// run.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

// A function that both the host and a kernel may call.
#ifdef __CUDACC__
#define GATE_ANYWHERE __host__ __device__
#else
#define GATE_ANYWHERE
#endif

namespace gate {

enum class Space { host, device };
// split: a value in three bytes, a tensor of upper halves (the value rounded to bf16) and behind it one of lower bytes (what that left).
enum class Element { f32, f64, i32, bf16, split };
GATE_ANYWHERE constexpr int64_t bytes_of_element(Element e) {
  return e == Element::f64 ? 8 : e == Element::bf16 ? 2 : e == Element::split ? 3 : 4;
}

// Shared: a copy is the same memory. What is in it at first is whatever was there.
class Memory {
 public:
  Memory() = default;
  Memory(Space space, int64_t bytes);
  Space space() const { return space_; }
  int64_t bytes() const { return bytes_; }
  std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  Space space_ = Space::host;
  int64_t bytes_ = 0;
  std::shared_ptr<std::byte> data_;
};
void set_bytes(void* data, Space space, std::byte value, int64_t bytes);
// Within one space.
void copy_bytes(void* to, const void* from, Space space, int64_t bytes);
// Throws std::logic_error when the sizes differ.
void copy(const Memory& to, const Memory& from);
Memory copy_of(const Memory& from);
void copy_to_host(void* host, const void* data, Space space, int64_t bytes);
Memory memory_of(Space space, const void* host, int64_t bytes);
template <class T>
Memory memory_of(Space space, const std::vector<T>& values) {
  return memory_of(space, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
}
template <class T>
std::vector<T> values_of(const Memory& memory) {
  std::vector<T> out(static_cast<size_t>(memory.bytes()) / sizeof(T));
  copy_to_host(out.data(), memory.data(), memory.space(), memory.bytes());
  return out;
}

// A bfloat16 is the upper half of a float; to the nearest, ties to even. A NaN stays one: the device's would become -0 in the sum.
GATE_ANYWHERE inline uint16_t bf16_bits(float value) {
  if (value != value) return 0x7fc0;
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

GATE_ANYWHERE inline double bf16_value(uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}
inline constexpr int64_t kBytesOfUpperHalf = 2;  // of a split element
// A float in three bytes. Its bits are counted in steps of 2^8, and these in steps of 2^16 of which the upper half is one; each time to the
// nearest, half a step away from zero. What lies between the two counts is the lower byte. Finite values only.
struct Parts {
  uint16_t upper;
  int8_t lower;
};
GATE_ANYWHERE inline Parts parts_of(float value) {
  const auto in_steps = [](int64_t count, int64_t step) { return count / step + (2 * (count % step) >= step ? 1 : 0); };
  const int64_t fine = in_steps(std::bit_cast<uint32_t>(value), 256), coarse = in_steps(fine, 256);
  return {static_cast<uint16_t>(coarse), static_cast<int8_t>(fine - 256 * coarse)};
}
GATE_ANYWHERE inline double value_of(const Parts& p) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>((int64_t{p.upper} * 256 + p.lower) * 256)));
}

// Values as doubles, whatever they are stored as.
struct View {
  const void* data = nullptr;
  Element element = Element::f64;
  int64_t count = 0;  // of all elements; may be 0 unless they are split
  GATE_ANYWHERE double operator[](int64_t i) const {
    switch (element) {
      case Element::f32:
        return static_cast<double>(static_cast<const float*>(data)[i]);
      case Element::f64:
        return static_cast<const double*>(data)[i];
      case Element::i32:
        return static_cast<double>(static_cast<const int32_t*>(data)[i]);
      case Element::bf16:
        return bf16_value(static_cast<const uint16_t*>(data)[i]);
      case Element::split:
        return value_of({static_cast<const uint16_t*>(data)[i], static_cast<const int8_t*>(data)[2 * count + i]});
    }
    return 0;
  }
};
// count: as in View.
GATE_ANYWHERE inline void store_value(void* data, Element element, int64_t i, double value, int64_t count = 0) {
  switch (element) {
    case Element::f32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      break;
    case Element::f64:
      static_cast<double*>(data)[i] = value;
      break;
    case Element::i32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      break;
    case Element::bf16:
      static_cast<uint16_t*>(data)[i] = bf16_bits(static_cast<float>(value));
      break;
    case Element::split: {
      const Parts parts = parts_of(static_cast<float>(value));
      static_cast<uint16_t*>(data)[i] = parts.upper;
      static_cast<int8_t*>(data)[2 * count + i] = parts.lower;
      break;
    }
  }
}
inline View view(const Memory& memory, Element element = Element::f64) {
  return {memory.data(), element, memory.bytes() / bytes_of_element(element)};
}

}  // namespace gate
