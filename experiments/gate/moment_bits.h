// Significant bits of what is stored: of fp32, of a value in three bytes, and of AdamW's moments in each of their forms.
#pragma once

namespace gate {

inline constexpr int kFp32Bits = 24, kSplitBits = 16;

// Fewer than fp32's where moments are rounded to so many at random.
struct MomentBits {
  int m = kFp32Bits, v = kFp32Bits;
  bool at_random() const { return m < kFp32Bits || v < kFp32Bits; }
  bool operator==(const MomentBits&) const = default;
};
inline constexpr MomentBits kSplitMoments{kSplitBits, kSplitBits}, kShortMoments{8, 9};  // v has no sign

}  // namespace gate
