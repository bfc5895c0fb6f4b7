// What a command says beside its answer.
#pragma once
#include "base/say.h"

namespace cli {

using stepscope::say;

}  // namespace cli
