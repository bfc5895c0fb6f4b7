#include "cli/experiment_aa.h"

#include <fmt/format.h>

#include <tuple>

#include "base/errors.h"
#include "cli/catch_interrupt.h"
#include "experiments/session/aa.h"

namespace cli {
namespace {

using stepscope::InputError;

// What would be measured and then not kept or not used is refused before anything is measured.
void check_flags(const AaFlags& f) {
  if (f.measure.plants() && !f.record.empty())
    throw InputError("--record keeps pairs of identical code, and --plant makes them unlike: leave one of the two out");
  if (f.alone == 0) return;
  only_these(f.measure.of_a_verdict, {}, "--alone records processes that run alone, and decides nothing: leave one of the two out");
  if (f.alone % 2 != 0) throw InputError(fmt::format("--alone is {}: expected an even number, as two processes make a pair", f.alone));
  if (f.record.empty()) throw InputError("--alone records processes: expected --record FILE, where they are kept");
}

}  // namespace

void run_aa(const AaFlags& f, const CommandLine& line, int& exit_code) {
  if (f.trials < 1) throw InputError(fmt::format("--trials is {}: expected at least 1", f.trials));
  check_flags(f);
  refuse_flags_of_the_loop(f.trainer);
  if (!f.record.empty()) check_new_record(f.record);
  experiments::AaOptions aa;
  aa.folder = results_folder(f.out, source_root());
  const CatchInterrupt guard;
  std::tie(aa.what, aa.arguments) = trainer_to_compare(f.trainer);
  aa.trials = f.trials;
  aa.alone = f.alone;
  aa.gate = !f.no_gate;
  aa.record = f.record;
  exit_code = experiments::run_aa(session_options(f.measure, line), aa);
}

void resample_recordings(const std::vector<std::string>& files, const MeasureFlags& measure) {
  experiments::Thresholds t = measure.plan.thresholds;
  if (measure.minimum_effect_pct > 0) t.minimum_effect = measure.minimum_effect_pct / 100;
  experiments::resample_recordings(files, t, [&](experiments::Procedure procedure) {
    MeasureFlags plan = measure;
    plan.quick = procedure == experiments::Procedure::in_turns;
    return planned_looks(plan);
  });
}

}  // namespace cli
