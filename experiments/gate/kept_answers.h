// Answers of the oracle in files, for gates of one program that follow each other: most of a gate's time is the oracle's, whose answer to the
// same weights and tokens does not depend on the trainer's variants.
//
// A file holds what a struct of this program holds, in this machine's bytes, and begins with the program's own size and time: to any other
// program, as one that was built again with another oracle, it is no answer.
#pragma once
#include <filesystem>
#include <optional>

#include "experiments/gate/expected.h"

namespace gate {

// Nothing where there is no such file, not all of one, or one of another program.
std::optional<Expected> read_answer(const std::filesystem::path& file);
// Throws stepscope::InputError for a folder that is missing or full.
void write_answer(const std::filesystem::path& file, const Expected& answer);

}  // namespace gate
