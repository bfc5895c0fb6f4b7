// Which steps at the begin of a program's run say nothing of the others.
#pragma once
#include <algorithm>
#include <cstdint>

namespace stepscope {

// The first ones carry initialization of libraries and the clock's ramp: how many of so many a median leaves out, a tenth, at least one and
// at most ten.
inline int64_t first_steps_left_out(int64_t steps) { return std::clamp<int64_t>(steps / 10, 1, 10); }

}  // namespace stepscope
