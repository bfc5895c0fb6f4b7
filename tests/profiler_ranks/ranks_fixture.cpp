#include "tests/profiler_ranks/ranks_fixture.h"

#include <algorithm>

namespace ranks {

using namespace profiler;

namespace {
constexpr int64_t kBegin_ns = 2'000'000'000;
constexpr int64_t kStep = 12;
constexpr int64_t kPitch_ns = 2'000'000;
}  // namespace

Op all_reduce(int64_t begin_ns, int64_t end_ns, int64_t mb, int64_t bucket) {
  return {"communication/0/copy/all_reduce fp32 " + std::to_string(mb * 250'000) + " bucket " + std::to_string(bucket), begin_ns, end_ns,
          "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 9};
}

RankRecording recording(const RankShape& shape) {
  RankRecording out;
  Recording& r = out.recording;
  out.source = "rank" + std::to_string(shape.rank) + ".jsonl";
  r.session.producer = "cupti";
  r.session.program = "stepscope train";
  r.session.device = {{"name", "Test GPU"}, {"uuid", "GPU-" + std::to_string(shape.rank)}, {"chip", "GH100"}, {"sm_count", "100"}};
  r.rank = RankRecord{shape.rank, shape.size, shape.job, "host-" + shape.boot, shape.boot, "time:[1]", shape.build};
  const int64_t zero = kBegin_ns - shape.clock_ns;
  StepRecord step;
  step.step = kStep;
  step.phase = Phase::activity;
  step.host_begin_ns = zero - 5000;
  step.host_end_ns = zero + 1'000'000;
  int64_t index = 0;
  for (const Op& o : shape.ops) {
    LaunchRecord l;
    l.step = kStep;
    l.index = index;
    l.name = o.name.empty() ? o.path + "_kernel()" : o.name;
    l.path = "step/" + o.path;
    if (o.name.starts_with("copy")) l.activity = Activity::copy;
    ++(l.activity == Activity::copy ? step.copies : step.kernels);
    l.stream = o.stream;
    l.grid = l.block = {1, 1, 1};
    l.correlation = 100 + index;
    l.launch_ns = zero - 4000 + index++;
    l.start_ns = zero + o.begin_ns;
    l.end_ns = zero + o.end_ns;
    step.gpu_begin_ns = step.gpu_begin_ns ? std::min(step.gpu_begin_ns, l.start_ns) : l.start_ns;
    step.gpu_end_ns = std::max(step.gpu_end_ns, l.end_ns);
    r.launches.push_back(l);
  }
  r.steps.push_back(step);
  for (int64_t n = 2; n < 10; ++n) {
    StepRecord s;
    s.step = n;
    s.phase = Phase::timed;
    s.host_begin_ns = zero - (kStep - n) * kPitch_ns;
    s.host_end_ns = s.host_begin_ns + kPitch_ns - shape.between_ns;
    r.steps.push_back(s);
  }
  r.environment.push_back({zero - 10'000'000, Phase::timed, shape.sm_clock_mhz, 3200, 600, 50, shape.throttle});
  return out;
}

std::vector<Op> two_bucket_step() {
  return {{"forward/0/qkv", 0, 400'000},          {"backward/1/qkv", 400'000, 800'000},    all_reduce(800'000, 1'100'000, 40, 0),
          {"backward/0/qkv", 800'000, 1'200'000}, all_reduce(1'200'000, 1'500'000, 20, 1), {"optimizer/-/adamw", 1'500'000, 1'700'000}};
}

ProfileDocument join(const std::vector<RankShape>& shapes, const JoinOptions& options) {
  std::vector<RankRecording> recordings;
  for (const RankShape& s : shapes) recordings.push_back(recording(s));
  return join_ranks(recordings, std::nullopt, {}, {}, options);
}

}  // namespace ranks
