// Text for eyes, where more than one part of the tree prints the same thing.
#pragma once
#include <string>
#include <string_view>

namespace stepscope {

// Nanoseconds as milliseconds with three places, without the unit: "25.700", "+0.012".
std::string ms_text(double ns);
std::string signed_ms_text(double ns);

// Text that stands in a cell of a Markdown table, or anywhere else in Markdown: it neither ends the cell nor is read as markup.
std::string markdown_escaped(std::string_view text);

}  // namespace stepscope
