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
  std::string communicator;  // nccl, peer, staged
  // all_reduce, reduce_scatter, all_gather; all_gather_in_place: into memory that the ranks have opened to each other, as weights travel by peer
  std::string kind;
  std::string type;  // fp32 …
  int64_t ranks = 0;
  int64_t bytes = 0;  // of the whole array
  double time_ns = 0;
};

struct LinkLine {
  double latency_ns = 0;
  double bus_bytes_per_s = 0;
};
struct LinkFit {
  std::string communicator, kind, type;
  int64_t ranks = 0;
  int64_t knee_bytes = 0;  // 0: `large` alone holds for all sizes
  LinkLine small, large;
  double worst_error_pct = 0;  // of the fit, over its points
};

// What a collective and work of a step do to each other when they run at once.
struct BesidePoint {
  std::string communicator, kind, type;
  int64_t ranks = 0, bytes = 0;
  std::string work;      // "product": matrix products of the trainers' shapes; "memory": an op that is bound by bandwidth
  int64_t rows = 0;      // of the products; 0 for memory
  double alone_ns = 0;   // the collective without work beside it
  double time_ns = 0;    // the collective beside the work
  double slowed_ns = 0;  // by which one such collective makes the work longer; below 0 where noise is larger than that
};

// A link sleeps after so long without traffic: 50,000 us by `nvidia-smi nvlink -gLowPwrInfo` of H200s, and by the links' state during training
// steps (experiments/studies/ranks-one-burst).
inline constexpr double kLinksSleepAfter_ns = 50e6;

// What it takes from a GPU at its power limit that its links do not sleep: they draw power, which lowers its clock. A stretch of products alone on
// every GPU, and the same with a collective of a few KiB before each.
struct AwakeLinks {
  int64_t ranks = 0;
  double asleep_ns = 0, awake_ns = 0;  // of the stretch
  double slower() const { return asleep_ns > 0 ? awake_ns / asleep_ns - 1 : 0; }
};

struct LinkCeilings {
  std::string device, communicator, driver, measured_at;  // "NVIDIA H200", "peer, nccl 2.28.9", …
  std::vector<std::string> uuids;                         // of the GPUs, sorted
  std::vector<LinkPoint> points;
  std::vector<LinkFit> fits;
  std::vector<BesidePoint> beside;
  std::optional<AwakeLinks> awake;  // absent: not measured
};

// Least squares of the relative error, so that a point of 10 us counts as much as one of 2 ms. The knee is that which leaves the least.
// A line that would need a negative latency or bandwidth has none: latency 0 and the bandwidth that fits then. nullopt for fewer than two
// points. The points are of one communicator, kind, type and number of ranks.
std::optional<LinkFit> fit_link(std::vector<LinkPoint> points);
// One fit per communicator, kind, type and number of ranks among the points.
std::vector<LinkFit> fit_links(const std::vector<LinkPoint>& points);

double predicted_ns(const LinkFit& fit, int64_t bytes);

// How long this collective takes alone: between measured sizes by interpolation of the logarithms, above the largest by its bandwidth, below
// the smallest its time. nullopt: this communicator, kind, type and number of ranks was not measured.
std::optional<double> measured_ns(const LinkCeilings& links, const std::string& communicator, const std::string& kind,
                                  const std::string& type, int64_t ranks, int64_t bytes);

// What happens while a collective and work of a step run at once, each as a speed of 1 where it runs alone.
struct BesideSpeeds {
  double work = 1, collective = 1;
};
// Between measured sizes, and between measured numbers of rows, by interpolation along their logarithms; outside of them the nearest.
// `product_share`: of the work's time that products take, the rest is memory's. The type and the number of ranks measured count only where
// several were. nullopt: nothing was measured beside this communicator's kind.
std::optional<BesideSpeeds> speeds_beside(const LinkCeilings& links, const std::string& communicator, const std::string& kind,
                                          const std::string& type, int64_t bytes, int64_t rows, double product_share);

// The first word of what carried a sweep: "nccl 2.28.9" is nccl.
std::string communicator_word(const std::string& name);

// "stepscope.links/2"; reads "stepscope.links/1" too, which is of one communicator and knows nothing of work beside it. Reading throws
// stepscope::InputError that names file and field.
std::string links_to_json(const LinkCeilings& links);
LinkCeilings links_from_json(std::string_view text, const std::string& source);

}  // namespace profiler
