// Tests of `stepscope data` with a small vocabulary; skipped where the program was built without Unicode tables.
#pragma once
#include "gpt2/data/pretokenizer.h"
#include "tests/cli/in_a_folder.h"
#include "tests/gpt2/small_vocabulary.h"

class WithVocabulary : public InAFolder {
 protected:
  void SetUp() override {
    if (!gpt2::unicode_tables_built_in()) GTEST_SKIP() << "built without ICU (libicu-dev)";
    write("vocab.bpe", gpt2::testing::kSmallMerges);
  }
  // What is said of so small a vocabulary, and nothing else.
  std::string vocabulary_note() const {
    return file("vocab.bpe") + ": 12 merges, GPT-2's has 50000: ids are not those of GPT-2, and the end of text is 268\n";
  }
  Outcome data(const std::string& arguments) const { return stepscope("data --vocab " + file("vocab.bpe") + " " + arguments); }
};
