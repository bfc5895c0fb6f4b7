#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <deque>
#include <set>

#include "base/errors.h"
#include "base/text.h"

namespace cli {
namespace {

std::vector<std::string> between_commas(const std::string& text) {
  std::vector<std::string> values;
  size_t from = 0;
  for (size_t comma = 0; (comma = text.find(',', from)) != std::string::npos; from = comma + 1)
    values.push_back(text.substr(from, comma - from));
  values.push_back(text.substr(from));
  return values;
}

CLI::Validator of_each_value(const CLI::Validator& one) {
  return CLI::Validator(
      [one](std::string& text) {
        for (std::string value : between_commas(text)) {
          if (value.empty()) return "found '" + text + "', expected a value on both sides of a comma";
          if (std::string problem = one(value); !problem.empty()) return problem;
        }
        return std::string();
      },
      one.get_description());
}

// CLI11 keeps them by address, which differs from run to run.
std::vector<std::string> names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (CLI::Option* o : options) names.push_back(Argument(o).name());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Argument* Argument::required() {
  option_->required();
  return this;
}
Argument* Argument::capture_default_str() {
  option_->capture_default_str();
  return this;
}
Argument* Argument::group(const std::string& name) {
  option_->group(name);
  return this;
}
Argument* Argument::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}
Argument* Argument::needs(Argument* other) {
  option_->needs(other->option_);
  return this;
}
Argument* Argument::excludes(Argument* other) {
  option_->excludes(other->option_);
  return this;
}
Argument* Argument::one_of(const std::vector<std::string>& words) {
  const CLI::Validator member = CLI::IsMember(words);
  option_->check(list_ ? of_each_value(member) : member);
  return this;
}
Argument* Argument::check(Check check) {
  const CLI::Validator one([problem = std::move(check.problem)](std::string& text) { return problem(text); }, check.expected);
  option_->check(list_ ? of_each_value(one) : one);
  return this;
}
Argument* Argument::each(std::function<void(const std::string&)> seen) {
  option_->each(std::move(seen));
  return this;
}
size_t Argument::count() const { return option_->count(); }
// CLI11 has no name for a flag that is hidden from --help.
std::string Argument::name() const {
  if (!option_->get_lnames().empty()) return "--" + option_->get_lnames().front();
  return option_->get_snames().empty() ? option_->get_name() : "-" + option_->get_snames().front();
}
bool Argument::hidden() const { return option_->get_group().empty(); }
std::string Argument::type_name() const { return option_->get_type_name(); }
std::string Argument::help() const { return option_->get_description(); }
std::string Argument::default_value() const { return option_->get_default_str(); }
bool Argument::is_required() const { return option_->get_required(); }
std::vector<std::string> Argument::needed() const { return names_of(option_->get_needs()); }
std::vector<std::string> Argument::excluded() const { return names_of(option_->get_excludes()); }
bool Argument::positional() const { return option_->get_positional(); }
bool Argument::takes_value() const { return option_->get_items_expected_max() > 0; }

void only_these(const std::vector<const Argument*>& all, const std::set<std::string>& useful, const std::string& why) {
  for (const Argument* a : all)
    if (a->count() > 0 && !useful.contains(a->name())) throw stepscope::InputError(a->name() + ": " + why);
}

void none_of_these(const std::vector<const Argument*>& all, const std::set<std::string>& useless, const std::string& why) {
  for (const Argument* a : all)
    if (a->count() > 0 && useless.contains(a->name())) throw stepscope::InputError(a->name() + ": " + why);
}

// Arguments are handed out as pointers, so they lie in a deque, which never moves them.
struct Command::State {
  std::unique_ptr<CLI::App> owned;  // of the outermost command only
  CLI::App* app;
  std::deque<Argument> arguments;
  std::vector<std::unique_ptr<Command>> commands;
  std::function<void()> run;

  Argument* add(CLI::Option* option, bool list = false) { return &arguments.emplace_back(option, list); }
};

namespace {

// "stepscope experiment run": the commands that were understood before an error. CLI11 reports every error from the outermost.
std::string words_so_far(const CLI::App& app) {
  std::string words = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return words;
}

// The option that was given more often than it takes.
const CLI::Option* repeated_option(const CLI::App& app) {
  for (const CLI::Option* o : app.get_options())
    if (o->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw && o->get_items_expected_max() > 0 &&
        o->count() > static_cast<size_t>(o->get_items_expected_max()))
      return o;
  for (const CLI::App* command : app.get_subcommands())
    if (const CLI::Option* o = repeated_option(*command)) return o;
  return nullptr;
}

// "; the nearest is --steps" behind an unknown "--stpes", "-steps" or "--stpes=5".
std::string nearest_flag(const CLI::App& app, const std::string& word) {
  if (!word.starts_with('-')) return "";
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::vector<std::string> names;
  for (const CLI::Option* o : command->get_options())
    if (!o->get_group().empty()) names.insert(names.end(), o->get_lnames().begin(), o->get_lnames().end());
  const std::string typed = word.substr(0, word.find('='));
  const std::string nearest = stepscope::nearest_word(typed.substr(std::min(typed.find_first_not_of('-'), typed.size())), names);
  return nearest.empty() ? "" : "; the nearest is --" + nearest;
}

// CLI11 lists unknown words from the last to the first, and counts a repeated flag in words of its own.
std::string problem_words(const CLI::App& app, const CLI::Error& e) {
  if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    std::string words;
    const std::vector<std::string> unknown = app.remaining(true);
    for (const std::string& word : unknown) words += (words.empty() ? "" : " ") + word;
    if (!words.empty()) return "unknown here: " + words + nearest_flag(app, unknown.front());
  }
  if (e.get_name() == "CallForHelp") return "unknown here: --help";  // its own words are for whoever calls the library
  if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch))
    if (const CLI::Option* o = repeated_option(app))
      return o->get_name() + ": given " + std::to_string(o->count()) + " times, expected once";
  const std::string words = e.what(), requires_word = " requires ";  // "--json requires text" reads as if --json took one
  if (const size_t at = words.find(requires_word);
      e.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiresError) && at != std::string::npos)
    return words.substr(0, at) + ": expected " + words.substr(at + requires_word.size()) + " with it";
  return words;
}

}  // namespace

Command::Command(const std::string& description, const std::string& name) : state_(std::make_unique<State>()) {
  state_->owned = std::make_unique<CLI::App>(description, name);
  state_->app = state_->owned.get();
  state_->app->failure_message([](const CLI::App* a, const CLI::Error& e) {
    return "stepscope: " + problem_words(*a, e) + "\nTry `" + words_so_far(*a) + " --help`.\n";
  });
}
Command::Command(std::unique_ptr<State> state) : state_(std::move(state)) {}
Command::~Command() = default;

template <class T>
Argument* Command::add_option(const std::string& names, T& target, const std::string& help) {
  return state_->add(state_->app->add_option(names, target, help));
}
template Argument* Command::add_option(const std::string&, std::string&, const std::string&);
template Argument* Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Argument* Command::add_option(const std::string&, int&, const std::string&);
template Argument* Command::add_option(const std::string&, int64_t&, const std::string&);
template Argument* Command::add_option(const std::string&, uint64_t&, const std::string&);
template Argument* Command::add_option(const std::string&, float&, const std::string&);
template Argument* Command::add_option(const std::string&, double&, const std::string&);
template Argument* Command::add_option(const std::string&, std::optional<int64_t>&, const std::string&);
template Argument* Command::add_option(const std::string&, std::optional<uint64_t>&, const std::string&);
template Argument* Command::add_option(const std::string&, std::optional<double>&, const std::string&);

Argument* Command::add_list(const std::string& names, std::vector<std::string>& target, const std::string& help) {
  // CLI11's own delimiter drops an empty value in silence: "1e-4,,1e-3" would be two.
  const auto take = [&target](const CLI::results_t& words) {
    target.clear();
    for (const std::string& word : words)
      for (std::string& value : between_commas(word)) target.push_back(std::move(value));
    return true;
  };
  CLI::Option* option = state_->app->add_option(names, take, help, false, [&target] { return CLI::detail::join(target, ","); });
  option->type_name("TEXT")->expected(CLI::detail::expected_max_vector_size);
  return state_->add(option, true);
}
Argument* Command::add_flag(const std::string& names, bool& target, const std::string& help) {
  return state_->add(state_->app->add_flag(names, target, help));
}
Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  auto state = std::make_unique<State>();
  state->app = state_->app->add_subcommand(name, description);
  return state_->commands.emplace_back(std::unique_ptr<Command>(new Command(std::move(state)))).get();
}
Command* Command::group(const std::string& name) {
  state_->app->group(name);
  return this;
}
Command* Command::footer(const std::string& text) {
  state_->app->footer(text);
  return this;
}
Command* Command::callback(std::function<void()> run) {
  state_->run = run;  // it owns what the options write into, and parse_only takes it from CLI11
  state_->app->callback(std::move(run));
  return this;
}
Command* Command::require_subcommand(int count) {
  state_->app->require_subcommand(count);
  return this;
}
void Command::set_version(const std::string& text) { state_->app->set_version_flag("--version", text); }
bool Command::has_subcommands() const { return !state_->commands.empty(); }
std::string Command::nearest_subcommand(std::string_view typed) const {
  std::vector<std::string> names;
  for (const auto& command : state_->commands)
    if (const CLI::App& app = *command->state_->app; !app.get_group().empty()) names.push_back(app.get_name());
  return stepscope::nearest_word(typed, names);
}
const Command* Command::subcommand(const std::string& name) const {
  for (const auto& c : state_->commands)
    if (c->state_->app->get_name() == name) return &*c;
  return nullptr;
}

void Command::for_each_argument(const std::function<void(const std::string&, Argument&)>& see) {
  const std::string command = state_->owned ? "" : state_->app->get_name();
  for (Argument& a : state_->arguments) see(command, a);
  for (const auto& c : state_->commands)
    c->for_each_argument([&](const std::string& inner, Argument& a) { see(command + (command.empty() ? "" : " ") + inner, a); });
}

std::vector<const Argument*> Command::arguments() {
  std::vector<const Argument*> all;
  for_each_argument([&](const std::string&, const Argument& a) { all.push_back(&a); });
  return all;
}

namespace {

void forget_callbacks(CLI::App& app) {
  app.callback({});
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) forget_callbacks(*sub);
}

}  // namespace

Command::Verdict Command::parse_only(int argc, const char* const* argv) {
  forget_callbacks(*state_->app);
  try {
    state_->app->parse(argc, argv);
    return {};
  } catch (const CLI::ParseError& e) {
    return {e.get_exit_code() == 0 ? 0 : 2, problem_words(*state_->app, e)};  // --help is an "error" of CLI11's
  }
}

std::optional<int> Command::parse(int argc, const char* const* argv) {
  try {
    state_->app->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    return state_->app->exit(e) == 0 ? 0 : 2;
  }
}

void Command::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    state_->app->parse(arguments);
  } catch (const CLI::ParseError& e) {
    throw stepscope::InputError(problem_words(*state_->app, e));
  }
}

}  // namespace cli
