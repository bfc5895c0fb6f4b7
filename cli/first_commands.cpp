// The commands of bin/stepscope-first, which need nothing of experiments/, the gate's ops among it.
#include <fmt/format.h>

#include "cli/commands.h"

namespace cli {

const std::vector<std::pair<std::string_view, AddCommand>>& commands() {
  static const std::vector<std::pair<std::string_view, AddCommand>> all{{"train", add_train_command}, {"profile", add_profile_command}};
  return all;
}

std::string unknown_command(std::string_view word, std::string_view) {
  return fmt::format("'{}': this program is built first and has `train` and `profile` alone; `./stepscope {}` builds the others", word,
                     word);
}

}  // namespace cli
