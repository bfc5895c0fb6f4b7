// The manifests of gpt2/prepare/sets/ as they were when this program was built (made by gpt2/prepare/CMakeLists.txt).
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace gpt2 {

std::vector<std::string> remote_set_names();
// Throws std::logic_error for another name.
std::string_view set_manifest(std::string_view name);

}  // namespace gpt2
