// The command line as the commands see it. CLI11 stands behind it and is included by arguments.cpp alone: it costs seconds of
// compiling in every file that names it, and each command would.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class Option;
}

namespace cli {

// What a text must be: `problem` answers "" for a good one, else what is wrong; `expected` stands in --help.
struct Check {
  std::function<std::string(const std::string&)> problem;
  std::string expected;
};

// An option, flag or positional argument. Every function returns the argument itself, so that calls can be chained.
class Argument {
 public:
  explicit Argument(CLI::Option* option, bool list = false) : option_(option), list_(list) {}
  Argument* required();
  Argument* capture_default_str();           // --help shows the value that the variable holds now
  Argument* group(const std::string& name);  // "" hides it from --help
  Argument* type_name(const std::string& name);
  Argument* needs(Argument* other);
  Argument* excludes(Argument* other);
  Argument* one_of(const std::vector<std::string>& words);
  Argument* check(Check check);
  Argument* each(std::function<void(const std::string&)> seen);  // called with every text given
  size_t count() const;                                          // how often it was given
  std::string name() const;                                      // "--out", also of one that --help does not show
  std::string type_name() const;                                 // "TEXT", "INT", "FLOAT", …
  std::string help() const;
  std::string default_value() const;  // "" where --help shows none
  bool is_required() const;
  std::vector<std::string> needed() const;    // names of those that must stand beside it
  std::vector<std::string> excluded() const;  // names of those that must not
  bool positional() const;
  bool takes_value() const;  // a flag does not
  bool hidden() const;

 private:
  CLI::Option* option_;
  bool list_;  // a check is asked about every value between commas
};

// Throws stepscope::InputError, which names the flag and `why`, for one of `all` that was given and has no use in this kind of call: who
// gave it would believe that it did something.
void only_these(const std::vector<const Argument*>& all, const std::set<std::string>& useful, const std::string& why);
// The same for one of `useless` that was given.
void none_of_these(const std::vector<const Argument*>& all, const std::set<std::string>& useless, const std::string& why);

class Command {
 public:
  explicit Command(const std::string& description = "", const std::string& name = "");
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // `T` is one of the types that arguments.cpp instantiates this for; the linker names one that is missing there.
  template <class T>
  Argument* add_option(const std::string& names, T& target, const std::string& help = "");
  // "odd,real" is two values, and so are two words; a check of it sees one after the other.
  Argument* add_list(const std::string& names, std::vector<std::string>& target, const std::string& help = "");
  Argument* add_flag(const std::string& names, bool& target, const std::string& help = "");
  Command* add_subcommand(const std::string& name, const std::string& description);
  Command* group(const std::string& name);
  Command* footer(const std::string& text);
  Command* callback(std::function<void()> run);
  Command* require_subcommand(int count);
  void set_version(const std::string& text);
  bool has_subcommands() const;
  const Command* subcommand(const std::string& name) const;      // nullptr: there is none
  std::string nearest_subcommand(std::string_view typed) const;  // of those that --help lists; "": none is near
  // Every argument that was added so far, here and in all subcommands; `command` is "" here, "experiment run" there.
  void for_each_argument(const std::function<void(const std::string& command, Argument&)>& see);
  std::vector<const Argument*> arguments();  // the same, without the commands

  // Parses and runs the callbacks, whose exceptions pass through. Returns the exit code where there was nothing to run: 0 after --help
  // or --version, 2 after a wrong command line, whose message is on stderr.
  std::optional<int> parse(int argc, const char* const* argv);
  // The same, without a callback being run, now or later: the exit code of such a command line, and the message of one that is wrong.
  struct Verdict {
    int exit_code = 0;
    std::string message;
  };
  Verdict parse_only(int argc, const char* const* argv);
  // Without a program name; throws stepscope::InputError.
  void parse(std::vector<std::string> arguments);

 private:
  struct State;
  explicit Command(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace cli
