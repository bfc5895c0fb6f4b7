// TinyStories as llm.c's dev/data/tinystories.py makes it: stories shuffled per file, stripped, an end-of-text token before each; the
// first file for validation. Training files stand in their order here; llm.c writes them as its worker processes finish.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace gpt2 {

// Python's random.Random(seed).shuffle of the numbers below `count`: Mersenne twister, init_by_array, Fisher-Yates from the end.
std::vector<uint32_t> python_shuffle(uint32_t seed, uint32_t count);
// Python's str.strip(): without Unicode white space at both ends.
std::string_view python_strip(std::string_view text);

// Throws stepscope::MachineError where this program cannot tokenize.
void check_can_make_tinystories();
// Unpacks FOLDER/TinyStories_all_data.tar.gz (by the program tar), writes FOLDER/TinyStories_val.bin, TinyStories_train.bin and
// gpt2_tokenizer.bin and prints what it wrote. Throws stepscope::MachineError without tar, stepscope::InputError for a damaged archive.
void make_tinystories(const std::filesystem::path& folder);

}  // namespace gpt2
