// A whole file as a string. For what is large, or read in place, there is MappedFile; for lines, std::ifstream.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace stepscope {

// Throws stepscope::InputError "PATH: cannot be read: REASON" for a file that is missing, a folder, a file without permission and a
// read that fails. Pipes and /proc files are read to their end.
std::string read_file(const std::filesystem::path& path);
// The same, but nothing where there is no such file.
std::optional<std::string> read_file_if_there(const std::filesystem::path& path);

}  // namespace stepscope
