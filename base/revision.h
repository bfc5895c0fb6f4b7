// The git revision that a program is of, as cmake/WriteBuildInfo.cmake writes it.
#pragma once
#include <string_view>

namespace stepscope {

inline constexpr std::string_view kDirty = "-dirty";  // behind the last commit, where the tree had changes that it does not hold
// Then the revision is the name of any number of programs.
inline bool has_uncommitted_changes(std::string_view revision) { return revision.ends_with(kDirty); }

}  // namespace stepscope
