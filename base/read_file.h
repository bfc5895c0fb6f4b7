// A whole file as a string. For what is large, or read in place, there is MappedFile; for lines, std::ifstream.
#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace stepscope {

// More than any document has: a checkpoint that somebody named instead, or /dev/zero, does not fill the memory first.
inline constexpr size_t kMostReadBytes = size_t{1} << 30;

// Throws stepscope::InputError "PATH: cannot be read: REASON" for a file that is missing, a folder, a file without permission, one of more
// than kMostReadBytes and a read that fails. Pipes and /proc files are read to their end.
std::string read_file(const std::filesystem::path& path);
// The same, but nothing where there is no such file.
std::optional<std::string> read_file_if_there(const std::filesystem::path& path);

}  // namespace stepscope
