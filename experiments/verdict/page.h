// The Markdown page of an experiment, made from its verdict document. What stands below kHandWritten is the
// explanation that no program writes; it is kept when the page is made again.
#pragma once
#include <filesystem>
#include <string>

#include "experiments/verdict/document.h"

namespace experiments {

inline constexpr const char* kHandWritten = "<!-- written by hand from here on; kept when the page is made again -->";
inline constexpr const char* kPageName = "README.md";  // beside verdict.json: a browser of the tree then shows both

std::string page_of(const VerdictDocument& verdict);
// Writes or renews the page, atomically.
void write_page(const std::filesystem::path& file, const VerdictDocument& verdict);
// What a terminal shows after a run: a few lines for each workload.
std::string summary_of(const VerdictDocument& verdict);

}  // namespace experiments
