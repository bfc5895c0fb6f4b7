// `stepscope data --fetch SET`: downloads a known data set with curl and prepares it.
#pragma once
#include <string>
#include <vector>

namespace gpt2 {

std::vector<std::string> known_data_sets();

// Files that are in the folder (empty: one named after the set) and are the right ones are not downloaded
// again, so what curl cannot get may be put there by hand. Prints what it wrote. Throws stepscope::MachineError
// when curl is absent or fails, stepscope::InputError for a file whose SHA-256 is not the expected one, be it
// downloaded (then nothing is kept of it) or there already (then it is left alone).
void fetch_data_set(const std::string& name, const std::string& folder);

}  // namespace gpt2
