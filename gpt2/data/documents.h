// Where one document of a text ends and the next begins: what an end-of-text token is put before.
#pragma once
#include <functional>
#include <string_view>

namespace gpt2 {

enum class Documents {
  file,       // the text is one
  paragraph,  // each ends with the empty line after it ("\n\n"), as in llm.c's dev/data/tinyshakespeare.py; a
              // text that ends with one is followed by an empty document, there and here
  marker,     // "<|endoftext|>" in the text stands between two and belongs to neither; empty ones are left out
};

// Calls `visit` with each document, in order; together they are the text (without the markers).
void for_each_document(std::string_view text, Documents how, const std::function<void(std::string_view)>& visit);

}  // namespace gpt2
