// The part of the op gate that needs no device: limits, and whether a check under these limits could fail at
// all.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "experiments/gate/metrics.h"
#include "experiments/gate/report.h"

namespace gate {

// What a plain fp32 or tf32 kernel may lose without being asked further; beyond it, twice what the baseline
// variant lost on the same inputs. tf32: both factors are cut to 10 bits, at worst 2^-10 each way when cut
// rather than rounded.
double op_floor(std::string_view matmul, bool is_matmul);

// max(floor, 2 x the baseline variant's own error), on the norm and on the worst row and column. `baseline`
// may be nullptr: this is the baseline variant.
Tolerance op_limit(double floor, const ErrorMetrics* baseline);

inline constexpr double kFakeNoise = 0.01;  // relative, of the noisy fake

// Wrong answers that are not rejected under `limit`: "zeros", "shuffled", "1% noise". Empty is good. Tensors
// of zeros, and for the shuffle tensors of one element, cannot tell and are not asked.
std::vector<std::string> accepted_fakes(const std::vector<double>& want, int64_t rows, int64_t columns,
                                        const Tolerance& limit);

}  // namespace gate
