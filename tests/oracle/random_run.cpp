#include "tests/oracle/random_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include "base/collective_words.h"
#include "tests/profiler/fixture.h"

namespace oracle {
namespace {

using namespace profiler;

// Remainders instead of the library's distributions, which differ from machine to machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t upto(int64_t most) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(most + 1)); }
  int64_t between(int64_t least, int64_t most) { return least + upto(most - least); }
  bool one_in(int64_t n) { return upto(n - 1) == 0; }
  double part() { return static_cast<double>(upto(1'000'000)) * 1e-6; }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[static_cast<size_t>(upto(static_cast<int64_t>(list.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

// Gaps of exactly a limit of the table of gaps are drawn too, since a limit belongs to the shorter ones.
const std::vector<int64_t> kGaps_ns = {0, 0, 0, 0, 1, 700, 1000, 1001, 4000, 5000, 20'000, 60'000, 100'000, 100'001, 150'000};

struct Planned {
  LaunchRecord launch;      // without times
  int64_t duration_ns = 0;  // about
  int64_t gap_ns = 0;       // in front of it
  bool waits = false;       // for everything launched before it
  bool near = false;        // begins and ends on all ranks within a few 100 ns, which bounds their clocks
};

LaunchRecord operation(Activity activity, std::string name, std::string path, int64_t stream) {
  LaunchRecord l;
  l.activity = activity;
  l.name = std::move(name);
  l.path = std::move(path);
  l.stream = stream;
  return l;
}

Planned planned_work(Dice& dice, int64_t streams, bool graph) {
  static const std::vector<std::string> kPlaces = {"encoder/-/embedding", "forward/0/ln1",     "forward/0/qkv",     "forward/1/ln1",
                                                   "forward/1/qkv",       "forward/-/lnf",     "backward/1/qkv",    "backward/0/qkv",
                                                   "backward/0/ln1",      "classifier/-/loss", "optimizer/-/adamw", "other/-/copy"};
  static const std::vector<std::string> kNames = {"gemm(float *)", "norm(float *)", "void sum<(int)4>(float *)"};
  Planned p;
  std::string path = "step/" + dice.of(kPlaces);
  if (dice.one_in(6)) path = "main/" + path + "/cublas";
  if (dice.one_in(10)) path = dice.one_in(2) ? "step" : "";
  p.launch = operation(Activity::kernel, dice.of(kNames), path, 7 + dice.upto(streams - 1));
  p.launch.grid = {dice.between(1, 20), dice.between(1, 20), dice.between(1, 4)};
  p.launch.block = {128, 1, 1};
  p.launch.registers = 32;
  p.duration_ns = dice.one_in(3) ? dice.between(1000, 9000) : dice.between(10'000, 90'000);
  p.gap_ns = dice.of(kGaps_ns);
  p.waits = dice.one_in(5);
  if (dice.one_in(6)) {
    static const std::vector<std::string> kCopies = {"copy HtoD", "copy DtoH", "copy DtoD"};
    const bool memset = dice.one_in(2);
    p.launch = operation(memset ? Activity::memset : Activity::copy, memset ? "memset" : dice.of(kCopies), path, p.launch.stream);
    p.launch.bytes = dice.between(8, 30'000'000);
  }
  if (graph && dice.one_in(2)) p.launch.graph_node = 1;
  return p;
}

// One collective: a kernel of NCCL, beside which a cast runs; or several copies by streams of their own, in front of which ranks may meet and
// between or behind which they add up what came. What carries nothing between ranks is communication too, but no part of the collective.
std::vector<Planned> planned_collective(Dice& dice, int64_t bucket, bool copies) {
  static const std::vector<std::string> kKinds = {"all_reduce", "reduce_scatter", "all_gather"};
  const std::string& kind = dice.of(kKinds);
  const std::string words = stepscope::collective_range(
      {kind, dice.one_in(2) ? "bf16" : "fp32", 4 * dice.between(1000, 9'000'000), dice.one_in(3) ? -1 : bucket});
  const std::string leaf =
      std::string("step/communication/-/") + (kind == "all_gather" && dice.one_in(2) ? "gather_weights" : "reduce_gradients");
  const std::string path = leaf + "/" + words;
  std::vector<Planned> list;
  const auto add = [&](Activity activity, const char* name, const std::string& in, int64_t stream, int64_t longest_ns) {
    Planned& p = list.emplace_back();
    p.launch = operation(activity, name, in, stream);
    if (activity == Activity::kernel) p.launch.grid = p.launch.block = {8, 1, 1};
    if (activity == Activity::copy) p.launch.bytes = 1000;
    p.duration_ns = dice.between(longest_ns / 16, longest_ns);
    p.gap_ns = dice.upto(9000);
  };
  if (!copies) {
    add(Activity::kernel, "ncclDevKernel_AllReduce_Sum_f32_RING_LL()", path, 20, 80'000);
    if (dice.one_in(4)) add(Activity::kernel, "cast(float *)", dice.one_in(2) ? path : leaf, 20, 30'000);
    return list;
  }
  if (dice.one_in(2)) add(Activity::kernel, "wait_for_ranks_kernel(int)", path, 20, 5000);
  for (int64_t part = 0, parts = dice.between(1, 4); part < parts; ++part) {
    add(Activity::copy, "copy DtoD", path, 20 + part, 80'000);
    if (dice.one_in(6)) add(Activity::kernel, "add_slices(float *)", path, 20, 30'000);
  }
  if (dice.one_in(3)) add(Activity::kernel, "add_slices(float *)", leaf, 20, 30'000);
  if (dice.one_in(4)) add(Activity::copy, "copy DtoD", leaf, 20, 30'000);  // within its own GPU
  return list;
}

struct Shape {
  int64_t streams = 1, traced = 1;
  double jitter = 0;  // of durations from step to step
  std::vector<Planned> plan;
  bool has_pass(const std::string& pass) const {
    return std::any_of(plan.begin(), plan.end(),
                       [&](const Planned& p) { return p.launch.path.find("step/" + pass + "/") != std::string::npos; });
  }
};

Shape random_shape(Dice& dice, int64_t ranks) {
  Shape s;
  s.streams = dice.between(1, 3);
  s.traced = dice.between(1, 6);
  s.jitter = dice.of(std::vector<double>{0.0005, 0.0005, 0.05, 0.3});
  const bool graph = dice.one_in(2), copies = dice.one_in(2);
  int64_t bucket = 0;
  for (int64_t i = 0, n = dice.between(8, 40); i < n; ++i) {
    s.plan.push_back(planned_work(dice, s.streams, graph));
    if (ranks == 1 && i > 2 && dice.one_in(12)) {  // of one rank or of a program that opens no ranges
      s.plan.push_back(planned_collective(dice, 0, false).front());
      if (dice.one_in(2)) s.plan.back().launch.path = "step";
    }
    if (ranks > 1 && i > 2 && dice.one_in(6))
      for (Planned& p : planned_collective(dice, bucket++, copies)) s.plan.push_back(p);
  }
  // Every step has a kernel in a leaf.
  s.plan.front().launch = operation(Activity::kernel, "embed(int *)", "step/encoder/-/embedding", 7);
  s.plan.front().launch.grid = s.plan.front().launch.block = {128, 1, 1};
  if (ranks > 1) s.plan.push_back(planned_collective(dice, bucket++, copies).front());
  if (ranks > 1 && !dice.one_in(4)) {
    Planned p = planned_collective(dice, bucket, copies).front();
    p.duration_ns = 1;
    p.near = true;
    s.plan.insert(s.plan.begin(), p);
  }
  std::map<Activity, int64_t> count;
  int64_t correlation = 100;
  for (Planned& p : s.plan) {
    p.launch.index = count[p.launch.activity]++;
    p.launch.correlation = correlation++;
    if (p.launch.graph_node) p.launch.graph_node = p.launch.correlation;
  }
  return s;
}

// In a range below the leaf "step/communication/-/OP".
bool inside_collective(const LaunchRecord& l) {
  return l.path.starts_with("step/communication/") && std::count(l.path.begin(), l.path.end(), '/') >= 4;
}

// The operations of one step of every rank; collectives end on no rank before all ranks have begun them.
std::vector<std::vector<LaunchRecord>> random_step(Dice& dice, const Shape& s, int64_t number, int64_t begin_ns, size_t ranks) {
  std::vector<std::vector<LaunchRecord>> steps(ranks);
  std::vector<std::map<int64_t, int64_t>> free(ranks);  // stream -> when its last operation ended
  const double all = 1 + s.jitter * (dice.part() - 0.5);
  for (size_t i = 0; i < s.plan.size(); ++i) {
    const Planned& p = s.plan[i];
    const bool together = inside_collective(p.launch);
    int64_t arrive = 0;
    for (size_t r = 0; r < ranks; ++r) {
      LaunchRecord l = p.launch;
      l.step = number;
      l.launch_ns = begin_ns + static_cast<int64_t>(i);
      int64_t ready = begin_ns + static_cast<int64_t>(r) * dice.upto(3000);
      for (const auto& [stream, ended] : free[r])
        if (p.waits || stream == l.stream || (together && stream < 20)) ready = std::max(ready, ended);
      l.start_ns = ready + p.gap_ns + (ranks > 1 ? dice.upto(2000) : 0);
      double factor = all * (1 + s.jitter * (dice.part() - 0.5));
      // A rank falls behind: its host comes late, or an operation takes longer there.
      if (ranks > 1 && dice.one_in(12)) l.start_ns += dice.upto(60'000);
      if (ranks > 1 && dice.one_in(12)) factor *= 1 + dice.part();
      if (p.near) l.start_ns = begin_ns + dice.upto(300);
      l.end_ns = l.start_ns + std::max<int64_t>(1, std::llround(static_cast<double>(p.duration_ns) * factor));
      free[r][l.stream] = l.end_ns;
      arrive = std::max(arrive, l.start_ns);
      steps[r].push_back(l);
    }
    for (size_t r = 0; together && r < ranks; ++r) {
      LaunchRecord& l = steps[r].back();
      l.end_ns = std::max(l.end_ns, arrive + 1 + dice.upto(p.near ? 300 : 9000));
      free[r][l.stream] = l.end_ns;
    }
  }
  return steps;
}

StepRecord step_of(const std::vector<LaunchRecord>& launches, int64_t number) {
  StepRecord s;
  s.step = number;
  s.phase = Phase::activity;
  s.gpu_begin_ns = launches.front().start_ns;
  for (const LaunchRecord& l : launches) {
    s.gpu_begin_ns = std::min(s.gpu_begin_ns, l.start_ns);
    s.gpu_end_ns = std::max(s.gpu_end_ns, l.end_ns);
    ++(l.activity == Activity::kernel ? s.kernels : l.activity == Activity::copy ? s.copies : s.memsets);
  }
  return s;
}

// One record for each kernel and counted step. SMs have warps for 5 to 100% of a kernel's time.
void count_kernels(Dice& dice, Recording& r, const Shape& s, int64_t first_step) {
  CounterSet core, more;
  core.name = "core";
  core.metrics = {"gpu__time_duration.sum",
                  "dram__bytes_read.sum",
                  "dram__bytes_write.sum",
                  "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
                  "sm__cycles_elapsed.max",
                  "sm__cycles_active.avg",
                  "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
                  "sm__warps_active.avg.pct_of_peak_sustained_active",
                  "gpc__cycles_elapsed.avg.per_second"};
  more.name = "more";
  more.metrics = {"lts__t_bytes.sum", "sm__inst_executed.sum", "sm__inst_executed_pipe_fma.sum"};
  const int64_t steps = dice.between(1, 4);
  int64_t kernels = 0;
  for (const Planned& p : s.plan) kernels += p.launch.activity == Activity::kernel && !(r.rank && inside_collective(p.launch));
  // A grid that depends on the data takes a kernel's counters away; the list of kernels is too short for two of them.
  const int64_t of_other_grid = kernels >= 20 && dice.one_in(3) ? dice.upto(kernels - 1) : -1;
  for (CounterSet* set : {&core, &more}) {
    int64_t index = 0;
    for (const Planned& p : s.plan) {
      if (p.launch.activity != Activity::kernel || (r.rank && inside_collective(p.launch))) continue;
      const double cycles = static_cast<double>(p.duration_ns) * (1.2 + 0.6 * dice.part()), busy = 0.05 + 0.95 * dice.part();
      const double tensor = dice.one_in(3) ? 3 * dice.part() : 100 * busy * dice.part();
      const double bytes = static_cast<double>(p.duration_ns) * 2000 * dice.part(), written = bytes * dice.part();
      for (int64_t n = 0; n < steps; ++n) {
        CounterRecord c;
        c.set = set->name;
        c.step = first_step + n;
        c.index = index;
        c.kernel = p.launch.name;
        c.path = p.launch.path;
        c.grid = p.launch.grid;
        if (index == of_other_grid) ++c.grid[1];
        const double vary = 1 + 0.1 * dice.part();
        if (set == &core)
          c.values = {static_cast<double>(p.duration_ns) * vary,
                      (bytes - written) * vary,
                      written * vary,
                      tensor,
                      cycles * vary,
                      cycles * busy * vary,
                      tensor / busy,
                      100 * dice.part(),
                      1e9 * (1 + dice.part())};
        else
          c.values = {1e5 * vary, 1e4 * dice.part(), static_cast<double>(p.duration_ns) * 40 * dice.part()};
        r.counters.push_back(c);
      }
      ++index;
    }
    set->launches = set->ranges = kernels * steps;
    // One more step of this set counts whole passes, where the tool of a set can.
    for (const char* pass : {"encoder", "backward"}) {
      CounterRecord c;
      c.set = set->name;
      c.step = first_step + steps;
      c.pass = pass;
      for (size_t m = 0; m < set->metrics.size(); ++m) c.values.push_back(1e6 * dice.part());
      if (s.has_pass(pass)) r.counters.push_back(c);
    }
    set->setup_ns = 1e8 * dice.part();
    set->run_ns = 1e8 * dice.part();
    set->decode_ns = 1e8 * dice.part();
    r.counter_sets.push_back(*set);
  }
}

// Warm-up, timed, counted and traced steps in a row, and NVML's samples from before the first to behind the last.
void add_steps(Dice& dice, Recording& r, const std::vector<std::vector<LaunchRecord>>& traced, int64_t first_traced, int64_t timed,
               int64_t warmup) {
  int64_t first_begin = 0;
  for (const LaunchRecord& l : traced.front()) first_begin = first_begin ? std::min(first_begin, l.start_ns) : l.start_ns;
  for (size_t n = 0; n < traced.size(); ++n) {
    StepRecord s = step_of(traced[n], first_traced + static_cast<int64_t>(n));
    s.host_begin_ns = s.gpu_begin_ns - dice.upto(900'000);
    s.host_end_ns = s.host_begin_ns + dice.between(1000, 50'000);
    r.steps.push_back(s);
  }
  int64_t begin = first_begin - 2'000'000;
  const int64_t pitch = dice.between(20, 300) * 1'000'000;
  std::vector<StepRecord> before;
  for (int64_t number = first_traced - 1; number >= 0; --number) {
    StepRecord s;
    s.step = number;
    s.phase = number < warmup ? Phase::warmup : number < warmup + timed ? Phase::timed : Phase::counters;
    begin -= pitch + dice.upto(pitch / 3);
    s.host_begin_ns = begin;
    s.host_end_ns = begin + pitch / 2 + dice.upto(pitch / 2);
    before.push_back(s);
  }
  r.steps.insert(r.steps.end(), before.begin(), before.end());
  const auto phase_at = [&](int64_t time) {
    Phase phase = Phase::warmup;
    for (auto s = before.rbegin(); s != before.rend(); ++s)
      if (time >= s->host_begin_ns) phase = s->phase;
    return time >= first_begin - 2'000'000 ? Phase::activity : phase;
  };
  double clock = 1980, power = 100;
  Phase last = Phase::warmup;
  const bool sampled = !dice.one_in(8);
  const int64_t throttles = dice.one_in(2) ? 9 : 400;  // one in so many samples
  for (int64_t time = begin - 50'000'000; sampled && time < traced.back().back().end_ns + 5'000'000;) {
    const Phase phase = phase_at(time);
    if (phase != last || dice.one_in(30)) clock = 1980 - 15 * static_cast<double>(dice.upto(30)), power = 100 + 600 * dice.part();
    last = phase;
    EnvironmentSample sample;
    sample.time_ns = time;
    sample.phase = phase;
    sample.sm_clock_mhz = clock + 15 * static_cast<double>(dice.upto(2));
    sample.memory_clock_mhz = 3200;
    sample.power_w = power + 10 * dice.part();
    sample.temperature_c = 40 + static_cast<double>(dice.upto(30));
    // Idle, which is no slowdown; of those that are, two in one sample at times.
    static const std::vector<uint64_t> kReasons = {1, 4, 8, 0x20, 0x40, 0x80, 4 | 0x20, 1 | 8};
    if (dice.one_in(throttles)) sample.throttle_reasons = dice.of(kReasons);
    r.environment.push_back(sample);
    time += phase == Phase::timed      ? dice.between(80, 120) * 1'000'000
            : phase == Phase::activity ? dice.between(20, 400) * 1000
                                       : dice.between(15, 25) * 1'000'000;
  }
}

RunInfo random_trainer(Dice& dice, const Shape& s, int64_t steps) {
  RunInfo run = fixture::gpt2_run();
  run.trainer = "fp32";
  run.matmul = dice.one_in(2) ? "tf32" : "fp32";
  run.steps.clear();
  run.work.clear();
  for (int64_t i = 0; i < steps; ++i) run.steps.push_back({i + 1, 11.0, 1.0, 5e6 + 1e6 * dice.part()});
  std::map<std::string, RunWork> work;
  for (const Planned& p : s.plan) {
    const size_t at = p.launch.path.find("step/");
    if (at == std::string::npos || p.launch.path.find("step/communication") != std::string::npos) continue;
    std::string leaf = p.launch.path.substr(at + 5);
    if (leaf.ends_with("/cublas")) leaf.resize(leaf.size() - 7);
    if (leaf.find("ln1") != std::string::npos) continue;  // the model knows nothing of this op
    work[leaf] = {leaf, dice.one_in(2) ? 1e9 * dice.part() : 0, 4e7 * dice.part()};
  }
  for (const auto& [leaf, w] : work) run.work.push_back(w);
  return run;
}

// What links do alone: a few sizes of each kind, not of every type, and of another number of ranks too.
LinkCeilings random_links(Dice& dice, int64_t size) {
  LinkCeilings links;
  for (const char* communicator : {"nccl", "peer", "staged"})
    for (const char* kind : {"all_reduce", "reduce_scatter", "all_gather", "all_gather_in_place"})
      for (const char* type : {"fp32", "bf16"})
        for (const int64_t ranks : {size, size + 1})
          for (int64_t bytes = 2000, unknown = dice.upto(5); unknown && bytes < 60'000'000; bytes *= dice.between(2, 30))
            links.points.push_back({communicator, kind, type, ranks, bytes, 2000 + 1e-3 * static_cast<double>(bytes) * dice.part()});
  return links;
}

}  // namespace

Run random_run(uint64_t seed, int64_t size) {
  Dice dice(seed * 2 + static_cast<uint64_t>(size) * 1'000'003);
  Run out;
  const Shape shape = random_shape(dice, size);
  const int64_t warmup = dice.between(1, 12), timed = dice.between(1, 40), counted = dice.between(1, 3);
  const int64_t first_traced = warmup + timed + counted;
  const auto ranks = static_cast<size_t>(size);
  // Steps after each other, each the operations of every rank.
  std::vector<std::vector<std::vector<LaunchRecord>>> traced(ranks);
  int64_t begin = 40'000'000'000;
  for (int64_t n = 0; n < shape.traced; ++n) {
    const auto steps = random_step(dice, shape, first_traced + n, begin, ranks);
    for (size_t r = 0; r < ranks; ++r) {
      traced[r].push_back(steps[r]);
      for (const LaunchRecord& l : steps[r]) begin = std::max(begin, l.end_ns);
    }
    begin += dice.between(1000, 3'000'000);
  }
  const bool cpu_clock_of_each = size > 1 && dice.one_in(3);
  const std::string chip = dice.one_in(5) ? "GB202" : "GH100";
  for (size_t r = 0; r < ranks; ++r) {
    RankRecording& of = out.ranks.emplace_back();
    of.source = "rank" + std::to_string(r);
    Recording& rec = of.recording;
    rec.session.producer = "cupti";
    rec.session.program = "stepscope train";
    rec.session.device = {{"name", "Test GPU"}, {"uuid", "GPU-" + std::to_string(r)}, {"chip", chip}, {"sm_count", "100"}};
    if (size > 1)
      rec.rank =
          RankRecord{static_cast<int64_t>(r), size, "job", "host", cpu_clock_of_each ? "boot" + std::to_string(r) : "boot", "time", "b"};
    for (const auto& step : traced[r]) rec.launches.insert(rec.launches.end(), step.begin(), step.end());
    std::vector<std::vector<LaunchRecord>> own = traced[r];
    add_steps(dice, rec, own, first_traced, timed, warmup);
    count_kernels(dice, rec, shape, first_traced - counted);
    // Another clock: all times of this rank are so much less.
    if (cpu_clock_of_each && r > 0) {
      const int64_t less = 2 * dice.between(-9'000'000, 9'000'000);
      for (LaunchRecord& l : rec.launches) l.start_ns -= less, l.end_ns -= less, l.launch_ns -= less;
      for (StepRecord& s : rec.steps) {
        s.host_begin_ns -= less, s.host_end_ns -= less;
        if (s.gpu_end_ns) s.gpu_begin_ns -= less, s.gpu_end_ns -= less;
      }
      for (EnvironmentSample& e : rec.environment) e.time_ns -= less;
    }
    // Order of lines means nothing.
    std::reverse(rec.steps.begin(), rec.steps.end());
    if (dice.one_in(2)) std::reverse(rec.launches.begin(), rec.launches.end());
  }
  if (!dice.one_in(3)) out.run = random_trainer(dice, shape, first_traced + shape.traced);
  if (size > 1 && !dice.one_in(4)) out.join.links = random_links(dice, size);
  out.ceilings = fixture::round_ceilings();
  out.ceilings.read_bytes_per_s = 1.3e12;
  out.ceilings.write_bytes_per_s = 0.8e12;
  out.options.first_timed_step = warmup;
  out.options.timed_steps = timed;
  return out;
}

}  // namespace oracle
