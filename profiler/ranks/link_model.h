// What the links between GPUs do alone: a sweep of collectives over sizes, measured by `doctor --gpus N`, and the model fitted to it.
//
// One collective of S bytes among N ranks takes t = latency + f(N) * S / bandwidth, with f the bus factor of collectives.h. NCCL changes its
// protocol with the size, so two such lines stand side by side, one up to `knee_bytes` and one above.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace profiler {

struct LinkPoint {
  std::string kind, type;  // all_reduce …, fp32 …
  int64_t ranks = 0;
  int64_t bytes = 0;  // of the whole array
  double time_ns = 0;
};

struct LinkLine {
  double latency_ns = 0;
  double bus_bytes_per_s = 0;
};
struct LinkFit {
  std::string kind, type;
  int64_t ranks = 0;
  int64_t knee_bytes = 0;  // 0: `large` alone holds for all sizes
  LinkLine small, large;
  double worst_error_pct = 0;  // of the fit, over its points
};

struct LinkCeilings {
  std::string device, communicator, driver, measured_at;  // "NVIDIA H200", "nccl 2.28.9", …
  std::vector<std::string> uuids;                         // of the GPUs, sorted
  std::vector<LinkPoint> points;
  std::vector<LinkFit> fits;
};

// Least squares of the relative error, so that a point of 10 us counts as much as one of 2 ms. The knee is that which leaves the least.
// A line that would need a negative latency or bandwidth has none: latency 0 and the bandwidth that fits then. nullopt for fewer than two
// points. The points are of one kind, type and number of ranks.
std::optional<LinkFit> fit_link(std::vector<LinkPoint> points);
// One fit per kind, type and number of ranks among the points.
std::vector<LinkFit> fit_links(const std::vector<LinkPoint>& points);

double predicted_ns(const LinkFit& fit, int64_t bytes);

// How long this collective takes alone: between measured sizes by interpolation of the logarithms, above the largest by its bandwidth, below
// the smallest its time. nullopt: this kind, type and number of ranks was not measured.
std::optional<double> measured_ns(const LinkCeilings& links, const std::string& kind, const std::string& type, int64_t ranks,
                                  int64_t bytes);

// "stepscope.links/1". Reading throws stepscope::InputError that names file and field.
std::string links_to_json(const LinkCeilings& links);
LinkCeilings links_from_json(std::string_view text, const std::string& source);

}  // namespace profiler
