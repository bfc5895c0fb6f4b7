// stepscope COMMAND: dispatch and the translation of errors into exit codes (design §4), nothing else. The only place that exits:
// 0 done and good · 1 the answer is no · 2 bad usage or input · 3 this machine cannot · 4 undecided.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "build_info.inc"
#include "cli/commands.h"
#include "cli/parse_only.h"
#include "cli/values.h"
#include "gpt2/errors.h"
#include "profiler/records/errors.h"

namespace {

void add_commands(CLI::App& app, const cli::CommandLine& line, int& exit_code) {
  cli::add_doctor_command(app, exit_code);
  cli::add_train_command(app, line, exit_code);
  cli::add_profile_command(app, line, exit_code);
  cli::add_ingest_command(app, line, exit_code);
  cli::add_report_command(app, exit_code);
  cli::add_diff_command(app, exit_code);
  cli::add_gate_command(app, exit_code);
  cli::add_baseline_command(app, exit_code);
  cli::add_data_command(app, exit_code);
  cli::add_experiment_command(app, line, exit_code);
  cli::add_kernels_command(app, exit_code);
  cli::add_arm_command(app);
  app.require_subcommand(1);
  cli::guard_values(app);
}

void parse(CLI::App& app, int argc, char** argv) {
  // CLI11 says only that a subcommand is missing, not which word was none.
  if (argc > 1 && argv[1][0] != '-' &&
      app.get_subcommands([&](const CLI::App* c) { return c->get_name() == argv[1]; }).empty())
    throw stepscope::InputError(fmt::format("unknown command '{}'; `stepscope --help` lists them", argv[1]));
  app.parse(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Where the time of a GPT-2 training step goes, and proof that a change made it faster without making "
      "it wrong.",
      "stepscope"};
  app.set_version_flag("--version", fmt::format("stepscope {} ({}, {})", kVersion, kGitRevision, kBuildType));
  app.failure_message([](const CLI::App* a, const CLI::Error& e) {
    return fmt::format("stepscope: {}\nTry `stepscope {}--help`.\n", e.what(),
                       a->get_parent() ? a->get_name() + " " : std::string());
  });
  int exit_code = 0;
  cli::CommandLine line{argv, argc};
  try {
    const std::string_view first = argc == 2 ? argv[1] : "";
    if (first == "--parse-only") {
      cli::parse_only([](int n, char** words) {
        CLI::App fresh{"", "stepscope"};
        int unused = 0;
        add_commands(fresh, {words, n}, unused);
        cli::forget_callbacks(fresh);
        parse(fresh, n, words);
      });
      return 0;
    }
    add_commands(app, line, exit_code);
    if (first == "--list-flags") {
      cli::list_flags(app);
      return 0;
    }
    parse(app, argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const stepscope::InputError& e) {
    fmt::print(stderr, "stepscope: {}\n", e.what());
    return 2;
  } catch (const profiler::DataError& e) {
    fmt::print(stderr, "stepscope: {}\n", e.what());
    return 2;
  } catch (const stepscope::MachineError& e) {
    fmt::print(stderr, "stepscope: {}\n", e.what());
    return 3;
  } catch (const profiler::DeviceError& e) {
    fmt::print(stderr, "stepscope: {}\n", e.what());
    return 3;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "stepscope: out of host memory\n");
    return 3;
  } catch (const std::exception& e) {
    fmt::print(stderr, "stepscope: {}\n", e.what());
    return 1;
  }
}
