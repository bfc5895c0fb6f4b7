#include "cli/parse_only.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/errors.h"

namespace cli {
namespace {

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

}  // namespace

void list_flags(Command& app) {
  app.for_each_argument([](const std::string& command, Argument& a) {
    fmt::print("{}\n", nlohmann::ordered_json{{"command", command},
                                              {"name", a.name()},
                                              {"hidden", a.hidden()},
                                              {"type", a.type_name()},
                                              {"takes_value", a.takes_value()},
                                              {"positional", a.positional()},
                                              {"required", a.is_required()},
                                              {"needs", a.needed()},
                                              {"excludes", a.excluded()},
                                              {"default", a.default_value()},
                                              {"help", a.help()}}
                           .dump());
  });
}

void parse_only(const std::function<Command::Verdict(int, const char* const*)>& judge) {
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> words{"stepscope"};
    for (size_t at = 0;;) {
      const size_t tab = line.find('\t', at);
      words.push_back(line.substr(at, tab - at));
      if (tab == std::string::npos) break;
      at = tab + 1;
    }
    std::vector<const char*> argv;
    for (const std::string& w : words) argv.push_back(w.c_str());
    Command::Verdict verdict;
    try {
      verdict = judge(static_cast<int>(words.size()), argv.data());
    } catch (const stepscope::InputError& e) {
      verdict = {2, e.what()};
    }
    fmt::print("{}\t{}\n", verdict.exit_code, one_line(verdict.message));
  }
}

}  // namespace cli
