// What a command says beside its answer.
#pragma once
#include <string_view>

#include "base/say.h"

namespace cli {

inline void say(std::string_view text) { stepscope::say(text); }

}  // namespace cli
