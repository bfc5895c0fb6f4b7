#include "cli/experiment_coverage.h"

#include <tuple>

#include "cli/catch_interrupt.h"

namespace cli {

void run_coverage(const CoverageFlags& f, const CommandLine& line, int& exit_code) {
  refuse_val_data(f.trainer);
  if (!f.record.empty()) check_new_record(f.record);
  experiments::CoverageOptions o;
  std::tie(o.what, o.arguments) = trainer_to_compare(f.trainer);
  o.plants = f.plants;
  o.truth_rounds = f.truth_rounds;
  o.truth_settle_s = o.truth_s = f.truth_s / 2;
  o.record = f.record;
  const CatchInterrupt guard;
  exit_code = experiments::run_coverage(session_options(f.measure, line), o);
}

}  // namespace cli
