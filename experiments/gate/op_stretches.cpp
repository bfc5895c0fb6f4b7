#include "experiments/gate/op_stretches.h"

#include <algorithm>
#include <stdexcept>

namespace gate {

int64_t Stretches::count() const {
  int64_t n = 0;
  for (const Stretch& s : all) n += s.count;
  return n;
}

Stretches stretches_of(int64_t whole, int64_t each, const std::vector<int64_t>& places) {
  Stretches out{.whole = whole, .all = {{0, each}}};
  for (const int64_t place : places)
    if (place < whole) out.all.push_back({place - each / 2, each});
  out.all.push_back({whole - each, each});
  for (size_t i = 1; i < out.all.size(); ++i)
    if (out.all[i].first < out.all[i - 1].first + each) throw std::logic_error("stretches_of: two have common elements");
  return out;
}

gpt2::TensorLayout cut(const gpt2::TensorLayout& layout, const Stretches& stretches) {
  const auto before = [&](int64_t element) {
    int64_t n = 0;
    for (const Stretch& s : stretches.all) n += std::clamp<int64_t>(element - s.first, 0, s.count);
    return n;
  };
  gpt2::TensorLayout out;
  for (size_t i = 0; i < layout.span.size(); ++i) {
    const gpt2::TensorSpan& span = layout.span[i];
    out.span[i].offset = before(span.offset);
    out.span[i].size = before(span.offset + span.size) - out.span[i].offset;
  }
  out.total = before(layout.total);
  return out;
}

void spread(void* whole, const Memory& stretched, int64_t width, const Stretches& stretches) {
  set_bytes(whole, stretched.space(), std::byte{0}, stretches.whole * width);
  const std::byte* from = stretched.data();
  for (const Stretch& s : stretches.all) {
    copy_bytes(static_cast<std::byte*>(whole) + s.first * width, from, stretched.space(), s.count * width);
    from += s.count * width;
  }
}

Memory gathered(const void* whole, Space space, int64_t width, const Stretches& stretches) {
  Memory out(space, stretches.count() * width);
  std::byte* to = out.data();
  for (const Stretch& s : stretches.all) {
    copy_bytes(to, static_cast<const std::byte*>(whole) + s.first * width, space, s.count * width);
    to += s.count * width;
  }
  return out;
}

}  // namespace gate
