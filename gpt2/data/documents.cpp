#include "gpt2/data/documents.h"

#include "gpt2/data/bpe.h"

namespace gpt2 {

void for_each_document(std::string_view text, Documents how, const std::function<void(std::string_view)>& visit) {
  if (how == Documents::file) return visit(text);
  const bool paragraph = how == Documents::paragraph;
  const std::string_view between = paragraph ? std::string_view("\n\n") : kEndOfText;
  while (true) {
    const size_t found = text.find(between);
    const bool last = found == std::string_view::npos;
    const std::string_view document = last ? text : paragraph ? text.substr(0, found + between.size()) : text.substr(0, found);
    if (paragraph || !document.empty()) visit(document);
    if (last) return;
    text.remove_prefix(found + between.size());
  }
}

}  // namespace gpt2
