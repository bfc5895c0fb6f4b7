#include "cli/experiment_coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/errors.h"
#include "cli/catch_interrupt.h"
#include "cli/gpu.h"
#include "experiments/gate/plant_spec.h"
#include "experiments/session/gates.h"

namespace cli {
namespace {

// Who names no trainer gets the CPU's where there is no GPU: what this machine lacks is no mistake of the flags.
void refuse_gpu_work_without_gpu(const CoverageFlags& f, const std::vector<std::string>& arguments) {
  if (f.trainer.trainer != "auto" || experiments::value_of(arguments, "--trainer") != "reference") return;
  for (const std::string& plant : f.plants)
    if (gate::plant_spec(plant))
      throw stepscope::MachineError(fmt::format("'{}' is work on a GPU, and there is none: {}", plant, gpu_status().why_not));
}

}  // namespace

void run_coverage(const CoverageFlags& f, const CommandLine& line, int& exit_code) {
  refuse_flags_of_the_loop(f.trainer);
  if (!f.record.empty()) check_new_record(f.record);
  experiments::CoverageOptions o;
  std::tie(o.what, o.arguments) = trainer_to_compare(f.trainer);
  for (const std::string& plant : f.plants)
    if (std::ranges::count(f.plants, plant) > 1) throw stepscope::InputError(fmt::format("{}: given twice", plant));
  refuse_gpu_work_without_gpu(f, o.arguments);
  o.plants = f.plants;
  o.truth_rounds = f.truth_rounds;
  o.truth_settle_s = o.truth_s = f.truth_s / 2;
  o.record = f.record;
  const CatchInterrupt guard;
  exit_code = experiments::run_coverage(session_options(f.measure, line), o);
}

}  // namespace cli
