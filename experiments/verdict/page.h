// The Markdown page of an experiment, made from its verdict document. What stands below kHandWritten is the
// explanation that no program writes; it is kept when the page is made again.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace experiments {

inline constexpr const char* kHandWritten = "<!-- written by hand from here on; kept when the page is made again -->";

std::string page_of(const nlohmann::ordered_json& verdict);
// Writes or renews the page, atomically.
void write_page(const std::filesystem::path& file, const nlohmann::ordered_json& verdict);
// What a terminal shows after a run: a few lines for each workload.
std::string summary_of(const nlohmann::ordered_json& verdict);

}  // namespace experiments
