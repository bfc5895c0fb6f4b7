// The files that a user names for results. What a result is written with is atomic_file.h; here is where it goes.
#pragma once
#include <filesystem>
#include <string_view>

namespace stepscope {

// Where the bytes of an output go. A symbolic link to a file that is not there yet is followed, as by every program that opens it; a rename
// would put the file in the link's place. Any other path is itself: AtomicFile follows links to files that are there. Throws InputError for
// links that lead to each other.
std::filesystem::path output_place(const std::filesystem::path& target);

// gpt2::write_file_atomically and gpt2::check_file_writable at that place. The check also refuses the file that stdout goes into.
void write_output(const std::filesystem::path& target, std::string_view content);
void check_output(const std::filesystem::path& target, std::string_view what);

}  // namespace stepscope
