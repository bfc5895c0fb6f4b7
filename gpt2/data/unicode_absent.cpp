// In place of unicode_icu.cpp where ICU's headers were not found at configure time.
#include "base/errors.h"
#include "gpt2/data/pretokenizer.h"

namespace gpt2 {

bool unicode_tables_built_in() { return false; }

void require_unicode_tables() {
  throw stepscope::MachineError(
      "this program was built without ICU (package libicu-dev), which knows what a letter is: text cannot be "
      "tokenized; install the package, delete the build folder and build again");
}

Character first_character(std::string_view text) {
  require_unicode_tables();
  return {CharacterClass::other, text.size()};
}

}  // namespace gpt2
