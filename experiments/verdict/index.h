// The table of all experiments, from their verdict files: predicted against measured, one row per workload.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace experiments {

inline constexpr const char* kIndexBegin = "<!-- experiments: made by `stepscope experiment index`, not by hand -->";
inline constexpr const char* kIndexEnd = "<!-- end of experiments -->";

// Every NAME/verdict.json below `folder`, sorted by name. Throws stepscope::InputError for one that does not
// load.
std::vector<nlohmann::ordered_json> read_verdicts(const std::filesystem::path& folder);
std::string index_table(const std::vector<nlohmann::ordered_json>& verdicts);
// `page` with the text between the two marks replaced by the table; without marks, they are added at its end.
std::string with_index(const std::string& page, const std::string& table);

}  // namespace experiments
