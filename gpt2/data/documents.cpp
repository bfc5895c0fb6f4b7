#include "gpt2/data/documents.h"

#include "gpt2/data/bpe.h"

namespace gpt2 {

void for_each_document(std::string_view text, Documents how, const std::function<void(std::string_view)>& visit) {
  if (how == Documents::file) return visit(text);
  const bool paragraph = how == Documents::paragraph;
  const std::string_view between = paragraph ? std::string_view("\n\n") : kEndOfText;
  // `next` is kept until it is passed: a text with "\r\n" alone has none.
  size_t begin = 0, next = text.find(between);
  while (true) {
    if (next < begin) next = text.find(between, begin);
    size_t found = next, length = between.size();
    // A text may have lines of either kind; the first empty one ends the paragraph. It is looked for where it would be the first, or a text
    // without it would be read to its end for every paragraph.
    if (paragraph)
      if (const size_t windows = (found == std::string_view::npos ? text : text.substr(0, found + 3)).find("\r\n\r\n", begin);
          windows < found)
        found = windows, length = 4;
    const bool last = found == std::string_view::npos;
    const std::string_view document = last ? text.substr(begin) : text.substr(begin, found - begin + (paragraph ? length : 0));
    if (paragraph || !document.empty()) visit(document);
    if (last) return;
    begin = found + length;
  }
}

}  // namespace gpt2
