#include "gpt2/prepare/vocabulary.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/stderr_text.h"

namespace gpt2 {

Bpe load_vocabulary(const std::string& vocab, const std::string& encoder) {
  Bpe bpe = Bpe::load(vocab);
  if (!encoder.empty())
    bpe.check_ids(std::filesystem::path(encoder));
  else if (const std::string other = bpe.not_gpt2(); !other.empty())
    stepscope::put_on_stderr(fmt::format("{}: {}\n", vocab, other));
  return bpe;
}

}  // namespace gpt2
