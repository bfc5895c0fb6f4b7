// Text for eyes, where more than one part of the tree prints the same thing.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

// Nanoseconds as milliseconds with three places, without the unit: "25.700", "+0.012".
std::string ms_text(double ns);
std::string signed_ms_text(double ns);

// Ranks in ascending order: "rank 3", "ranks 3, 5"; a run of more than two as "ranks 3-7".
std::string named_ranks(const std::vector<int>& ranks);

// Text from a file for a terminal: a kernel's name may hold an escape sequence that moves the cursor, sets the window's title or hides what
// follows. Control characters (ASCII's, U+0080 to U+009F, and those that turn the direction of writing) become '?', a line end too.
std::string printable(std::string_view text);
// The same, but line ends stay.
std::string printable_lines(std::string_view text);

// Text that stands in a cell of a Markdown table, or anywhere else in Markdown: it neither ends the cell nor is read as markup.
std::string markdown_escaped(std::string_view text);

// The one of `words` that was probably meant by `typed`: at most one slip away from it, or two where it has six letters or more. A slip
// is a letter too many, a missing or a wrong one, or two that changed places. "" where none is so near.
std::string nearest_word(std::string_view typed, const std::vector<std::string>& words);

}  // namespace stepscope
