// The vocabulary that text is tokenized with.
#pragma once
#include <string>

#include "gpt2/data/bpe.h"

namespace gpt2 {

// Of vocab.bpe. With `encoder` (encoder.json; "" = not given) its ids are compared, and others throw stepscope::InputError; without it a
// vocabulary of another size than GPT-2's is told on stderr.
Bpe load_vocabulary(const std::string& vocab, const std::string& encoder);

}  // namespace gpt2
