// How a verdict's numbers read on a page, in the table of all experiments and on a terminal: in one place, so that they agree.
#pragma once
#include <optional>
#include <string>

#include "experiments/verdict/document.h"

namespace experiments {

std::string change_pct(double ratio);                              // 0.9846 -> "-1.54%"; 12 -> "above +1000%"
std::string effect_pct(double effect);                             // in percent: 0.3 -> "0.30%"; 4e16 -> "above 1000%"
std::string ratio_text(double ratio, const Range& i);              // "-1.54% [-1.64%, -1.44%]"
std::string ratio_text(const std::optional<RatioSection>& ratio);  // "-" without one
std::string ratio_text(const Statistics& statistics);
// A and B side by side: "1868 → 1886"; "-" unless both are there.
std::string both(const std::optional<double>& a, const std::optional<double>& b, int decimals);

// What `statistics` of this workload is the ratio of: "sustained", "at one clock (in turns)", "in turns, whole programs (a burst)".
std::string estimand(const WorkloadSection& workload);
// How the ratio at equal clocks was found: "in turns, 1890 MHz".
std::string equal_clocks_words(const WorkloadSection& workload);
// "the cap costs 6.3% of A's step and 6.1% of B's"; "" when nothing says so.
std::string cap_cost_text(const WorkloadSection& workload);
// Where both arms are at the power cap: what one clock says, what clock is given back, what is left; "" elsewhere.
std::string cap_text(const WorkloadSection& workload);
// Where the workloads of an experiment have different verdicts: what each says; "" where they agree.
std::string differences_text(const VerdictDocument& document);

// The predicted and the measured saving are both there, differ by more than 30% of the prediction, and the prediction is not inside the
// interval of the measured one: the experiment must say why. A prediction inside it is not contradicted, however wide the interval is.
bool prediction_is_off(const WorkloadSection& workload);

}  // namespace experiments
