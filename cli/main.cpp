// stepscope COMMAND: dispatch and the translation of errors into exit codes, nothing else. The only place that exits:
// 0 done and good · 1 the answer is no · 2 bad usage or input · 3 this machine cannot · 4 undecided.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "base/made_folders.h"
#include "build_info.inc"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/parse_only.h"
#include "cli/say.h"
#include "cli/values.h"

namespace {

// `only`: the command of this name, where there is one; every command otherwise.
void add_commands(cli::Command& app, const cli::CommandLine& line, int& exit_code, std::string_view only = "") {
  const bool known = std::ranges::any_of(cli::commands(), [&](const auto& c) { return c.first == only; });
  for (const auto& [name, add] : cli::commands())
    if (!known || name == only) add(app, line, exit_code);
  app.require_subcommand(1);
  cli::guard_values(app);
}

std::string nearest_to(std::string_view word, const cli::Command& in, const std::string& before = "") {
  const std::string nearest = in.nearest_subcommand(word);
  return nearest.empty() ? "" : fmt::format(", the nearest is `{}{}`", before, nearest);
}

// CLI11 says only that a subcommand is missing, not which word stands in its place.
void check_command(const cli::Command& app, int argc, const char* const* argv) {
  if (argc < 2) throw stepscope::InputError("expected a command; `stepscope --help` lists them");
  const std::string_view word = argv[1];
  const cli::Command* command = app.subcommand(argv[1]);
  if (!word.starts_with('-') && command == nullptr) throw stepscope::InputError(cli::unknown_command(word, nearest_to(word, app)));
  if (command != nullptr && command->has_subcommands() && argc > 2 && argv[2][0] != '-' && command->subcommand(argv[2]) == nullptr)
    throw stepscope::InputError(fmt::format("unknown command '{} {}'{}; `stepscope {} --help` lists them", word, argv[2],
                                            nearest_to(argv[2], *command, fmt::format("{} ", word)), word));
  if (word.starts_with('-') && word != "-h" && word != "--help" && word != "--version")
    throw stepscope::InputError(fmt::format("'{}': expected a command first; `stepscope --help` lists them", word));
}

// A stream that the caller closed would give its number to the next file that is opened, and what is printed would go into that file.
void hold_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", O_RDWR) != fd) std::abort();
}

using cli::say;

// What this program printed is its answer: a full disk behind stdout must not look like success.
int after_printing(int exit_code) {
  errno = 0;
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!lost) return exit_code;
  say(fmt::format("cannot write stdout: {}", errno != 0 ? std::strerror(errno) : "an earlier write failed"));
  return exit_code == 0 ? 2 : exit_code;
}

int run_command(int argc, char** argv) {
  int exit_code = 0;
  cli::CommandLine line{argv, argc};
  cli::Command app{"Where the time of a GPT-2 training step goes, and proof that a change made it faster without making it wrong.",
                   "stepscope"};
  app.set_version(fmt::format("stepscope {} ({}, {})", kVersion, kGitRevision, kBuildType));
  try {
    add_commands(app, line, exit_code);
    const std::string_view first = argc == 2 ? argv[1] : "";
    if (first == "--list-flags") {
      cli::list_flags(app);
      return 0;
    }
    if (first == "--parse-only") {
      cli::parse_only([](int n, const char* const* words) {
        // A command line may be parsed once by one set of commands, and thousands of lines want the flags of their own command only.
        cli::Command fresh{"", "stepscope"};
        int unused = 0;
        add_commands(fresh, {const_cast<char**>(words), n}, unused, n > 1 ? words[1] : "");
        check_command(fresh, n, words);
        return fresh.parse_only(n, words);
      });
      return 0;
    }
    check_command(app, argc, argv);
    const std::optional<int> ended = app.parse(argc, argv);
    return ended ? *ended : exit_code;
  } catch (const stepscope::InputError& e) {
    say(e.what());
    return 2;
  } catch (const std::filesystem::filesystem_error& e) {  // a path that somebody named; a sentence of ours would be better
    say(e.what());
    return 2;
  } catch (const stepscope::MachineError& e) {
    say(e.what());
    return 3;
  } catch (const std::bad_alloc&) {
    std::fputs("stepscope: out of host memory\n", stderr);
    return 3;
  } catch (const std::exception& e) {
    if (std::ferror(stdout) != 0) return 0;  // fmt throws where a write fails; after_printing says so
    if (std::ferror(stderr) != 0) return 2;
    say(e.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  hold_closed_streams();
  std::signal(SIGCHLD, SIG_DFL);  // whoever started this may ignore it, and the ends of our own processes would then be nobody's
  const int exit_code = run_command(argc, argv);
  if (exit_code != 0) stepscope::remove_made_folders_left_empty();
  return after_printing(exit_code);
}
