// The commands of bin/stepscope and bin/stepscope-host.
#include <fmt/format.h>

#include "cli/commands.h"

namespace cli {

const std::vector<std::pair<std::string_view, AddCommand>>& commands() {
  static const std::vector<std::pair<std::string_view, AddCommand>> all{
      {"doctor", add_doctor_command},
      {"train", add_train_command},
      {"profile", add_profile_command},
      {"energy", add_energy_command},
      {"ingest", add_ingest_command},
      {"report", [](auto& app, auto&, int& exit_code) { add_report_command(app, exit_code); }},
      {"join", add_join_command},
      {"diff", [](auto& app, auto&, int& exit_code) { add_diff_command(app, exit_code); }},
      {"scaling", [](auto& app, auto&, int&) { add_scaling_command(app); }},
      {"gate", [](auto& app, auto&, int& exit_code) { add_gate_command(app, exit_code); }},
      {"baseline", [](auto& app, auto&, int& exit_code) { add_baseline_command(app, exit_code); }},
      {"data", [](auto& app, auto&, int& exit_code) { add_data_command(app, exit_code); }},
      {"eval", [](auto& app, auto&, int& exit_code) { add_eval_command(app, exit_code); }},
      {"experiment", add_experiment_command},
      {"kernels", [](auto& app, auto&, int& exit_code) { add_kernels_command(app, exit_code); }},
      {"arm", [](auto& app, auto&, int&) { add_arm_command(app); }}};
  return all;
}

std::string unknown_command(std::string_view word, std::string_view nearest) {
  return fmt::format("unknown command '{}'{}; `stepscope --help` lists them", word, nearest);
}

}  // namespace cli
