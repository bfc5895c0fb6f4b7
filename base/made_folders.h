// Folders that a command makes before it knows whether it can do its work: one that is refused leaves none behind.
#pragma once
#include <filesystem>
#include <string_view>

namespace stepscope {

// std::filesystem::create_directories; what it made is remembered and survives a power cut. Why a folder cannot be made is said by who writes
// into it.
void make_folders(const std::filesystem::path& folder);
// Removes those that make_folders made in this process and that are empty.
void remove_made_folders_left_empty();

// gpt2::check_folder_writable of a folder that make_folders has made where it was missing. Throws stepscope::InputError.
void check_folder_usable(const std::filesystem::path& folder, std::string_view what);

}  // namespace stepscope
