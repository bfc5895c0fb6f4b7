// Which steps at the begin of a program's run say nothing of the others.
#pragma once
#include <algorithm>
#include <concepts>

namespace stepscope {

// The first ones carry initialization of libraries and the clock's ramp: how many of so many a median leaves out, a tenth, at least one and
// at most ten.
template <std::integral Count>
Count first_steps_left_out(Count steps) {
  return std::clamp<Count>(steps / 10, 1, 10);
}

}  // namespace stepscope
