// Where what was measured once on this machine is kept: ceilings of the device, algorithms of cuBLASLt.
#pragma once
#include <filesystem>

namespace stepscope {

// $STEPSCOPE_CACHE, else $XDG_CACHE_HOME/stepscope, else $HOME/.cache/stepscope; "" where none of the three is set: then nothing is kept.
// An empty variable counts as unset. The folder need not exist.
std::filesystem::path cache_folder();

}  // namespace stepscope
