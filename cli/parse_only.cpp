#include "cli/parse_only.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "gpt2/errors.h"

namespace cli {
namespace {

// CLI11 has no name for a flag that is hidden from --help.
std::string name_of(const CLI::Option& o) {
  if (!o.get_lnames().empty()) return "--" + o.get_lnames().front();
  return o.get_snames().empty() ? o.get_name() : "-" + o.get_snames().front();
}

void list_flags(const CLI::App& app, const std::string& command) {
  for (const CLI::Option* o : app.get_options([](const CLI::Option*) { return true; }))
    fmt::print("{}\n", nlohmann::ordered_json{{"command", command},
                                              {"name", name_of(*o)},
                                              {"hidden", o->get_group().empty()},
                                              {"type", o->get_type_name()},
                                              {"takes_value", o->get_items_expected_max() > 0},
                                              {"positional", o->get_positional()}}
                           .dump());
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    list_flags(*sub, command + (command.empty() ? "" : " ") + sub->get_name());
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

}  // namespace

void list_flags(const CLI::App& app) { list_flags(app, ""); }

void forget_callbacks(CLI::App& app) {
  app.callback({});
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) forget_callbacks(*sub);
}

void parse_only(const std::function<void(int, char**)>& parse) {
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> words{"stepscope"};
    for (size_t at = 0;;) {
      const size_t tab = line.find('\t', at);
      words.push_back(line.substr(at, tab - at));
      if (tab == std::string::npos) break;
      at = tab + 1;
    }
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    int status = 0;
    std::string message;
    try {
      parse(static_cast<int>(words.size()), argv.data());
    } catch (const CLI::ParseError& e) {
      status = e.get_exit_code() == 0 ? 0 : 2;  // --help is an "error" of CLI11's
      message = e.what();
    } catch (const stepscope::InputError& e) {
      status = 2;
      message = e.what();
    }
    fmt::print("{}\t{}\n", status, one_line(message));
  }
}

}  // namespace cli
