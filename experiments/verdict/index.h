// The table of all experiments, from their verdict files: predicted against measured, one row per workload.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/verdict/document.h"

namespace experiments {

inline constexpr const char* kIndexBegin = "<!-- experiments: made by `stepscope experiment index`, not by hand -->";
inline constexpr const char* kIndexEnd = "<!-- end of experiments -->";

// Every NAME/verdict.json below `folder`, sorted by name; none where there is no such folder.
std::vector<std::filesystem::path> verdict_files(const std::filesystem::path& folder);
// Why a verdict must not lie in `file`: the folder of NAME/verdict.json is another experiment's. "" = it is its own.
std::string why_in_the_wrong_folder(const VerdictDocument& verdict, const std::filesystem::path& file);
// What is in them. Throws stepscope::InputError for one that does not load or is of another name.
std::vector<VerdictDocument> read_verdicts(const std::filesystem::path& folder);
// `studies`: from the page that holds the table to the folder with the pages, "../../experiments/studies"; "" = links to NAME/README.md.
std::string index_table(const std::vector<VerdictDocument>& verdicts, const std::string& studies);
// `page` with the text between the two marks replaced by the table; without marks, they are added at its end.
std::string with_index(const std::string& page, const std::string& table);

}  // namespace experiments
