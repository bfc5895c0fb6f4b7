#include "tests/profiler/fixture.h"

#include <algorithm>

namespace fixture {
namespace {

using namespace profiler;

constexpr int64_t kBegin_ns = 1'000'000'000;
constexpr int64_t kStep = 12;

const std::vector<std::string> kMetrics = {"gpu__time_duration.sum",
                                           "dram__bytes_read.sum",
                                           "dram__bytes_write.sum",
                                           "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
                                           "sm__cycles_elapsed.max",
                                           "sm__cycles_active.avg",
                                           "sm__warps_active.avg.pct_of_peak_sustained_active",
                                           "gpc__cycles_elapsed.avg.per_second",
                                           "sm__inst_executed_pipe_fma.sum"};

SessionRecord session() {
  SessionRecord s;
  s.producer = "cupti";
  s.program = "stepscope train --trainer fp32 --model tiny";
  s.pid = 4711;
  s.device = {{"name", "Test GPU"}, {"uuid", "GPU-0"}, {"chip", "GH100"}, {"sm_count", "100"}, {"compute_capability", "9.0"}};
  s.versions = {{"driver", "580.1"}, {"cuda_runtime", "13.0"}, {"cupti", "130001"}};
  return s;
}

StepRecord step(int64_t number, Phase phase, int64_t begin_ns, int64_t length_ns) {
  StepRecord s;
  s.step = number;
  s.phase = phase;
  s.host_begin_ns = begin_ns;
  s.host_end_ns = begin_ns + length_ns;
  return s;
}

}  // namespace

Recording recording(const std::vector<Kernel>& kernels) {
  Recording r;
  r.session = session();
  int64_t now = kBegin_ns;
  CounterSet set;
  set.name = "core";
  set.metrics = kMetrics;
  set.setup_ns = 4e8;
  set.run_ns = 5e8;
  set.decode_ns = 1e8;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Kernel& k = kernels[i];
    LaunchRecord l;
    l.step = kStep;
    l.index = static_cast<int64_t>(i);
    l.name = k.name;
    l.path = k.path.empty() ? "" : "step/" + k.path;
    l.stream = 7;
    l.grid = {200, 1, 1};
    l.block = {256, 1, 1};
    l.registers = 32;
    l.correlation = 1000 + static_cast<int64_t>(i);
    l.start_ns = now;
    l.end_ns = now + k.duration_ns;
    now = l.end_ns + 1000;
    r.launches.push_back(l);

    CounterRecord c;
    c.set = "core";
    c.step = 13;
    c.index = l.index;
    c.kernel = l.name;
    c.path = l.path;
    c.grid = l.grid;
    const auto t = static_cast<double>(k.duration_ns);
    c.values = {t, k.read_bytes, k.write_bytes, k.tensor_pct, t, t, 50, 1e9, 1000};
    r.counters.push_back(c);
  }
  set.launches = set.ranges = static_cast<int64_t>(kernels.size());
  r.counter_sets.push_back(set);
  StepRecord s = step(kStep, Phase::activity, kBegin_ns - 5000, now - kBegin_ns);
  s.gpu_begin_ns = kBegin_ns;
  s.gpu_end_ns = now - 1000;
  s.kernels = static_cast<int64_t>(kernels.size());
  r.steps.push_back(s);
  r.environment.push_back({kBegin_ns - 10'000'000, Phase::timed, 1500, 3200, 400, 50, 0});
  r.environment.push_back({kBegin_ns + 10'000'000, Phase::activity, 1490, 3200, 410, 51, 0});
  return r;
}

std::vector<Kernel> gpt2_kernels() {
  const std::string ln_f = "void fp32::(anonymous namespace)::layernorm_forward_kernel<(int)4>(float *, const float *, int)";
  const std::string ln_b = "void fp32::(anonymous namespace)::layernorm_backward_kernel(float *, const float *, int)";
  const std::string gemm_nn = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)";
  const std::string gemm_tn = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4";
  const std::string att_f = "fp32::(anonymous namespace)::softmax_forward_kernel(float *, float, const float *, int, int)";
  std::vector<Kernel> k;
  k.push_back({"encoder/-/embedding", "fp32::embedding_forward_kernel(float *, const int *)", 10'000, 4e6, 4e6, 0});
  for (int l = 0; l < 2; ++l) {
    const std::string layer = "forward/" + std::to_string(l) + "/";
    k.push_back({layer + "ln1", ln_f, 20'000, 8e6, 8e6, 0});
    k.push_back({layer + "qkv", gemm_tn, 200'000, 20e6, 24e6, 0});
    k.push_back({layer + "attention", att_f, 150'000, 60e6, 60e6, 0});
  }
  k.push_back({"classifier/-/lm_head", gemm_tn, 400'000, 50e6, 100e6, 0});
  k.push_back({"classifier/-/loss", "fp32::fused_classifier_kernel(float *, float *, const int *)", 250'000, 100e6, 100e6, 0});
  k.push_back({"backward/-/lm_head", gemm_nn, 800'000, 200e6, 60e6, 0});
  for (int l = 1; l >= 0; --l) {
    const std::string layer = "backward/" + std::to_string(l) + "/";
    k.push_back({layer + "attention", att_f, 300'000, 120e6, 120e6, 0});
    k.push_back({layer + "qkv", gemm_nn, 400'000, 44e6, 40e6, 30});
    k.push_back({layer + "ln1", ln_b, 40'000, 24e6, 8e6, 0});
  }
  k.push_back({"backward/-/embedding", "fp32::embedding_backward_kernel(float *, const float *)", 3'000, 1e6, 1e6, 0});
  k.push_back({"optimizer/-/grad_norm", "fp32::norm_kernel(float *, const float *, long)", 100'000, 80e6, 0, 0});
  k.push_back({"optimizer/-/adamw", "fp32::adamw_kernel<(bool)1>(float *, float *)", 400'000, 200e6, 150e6, 0});
  return k;
}

Recording gpt2_recording() {
  Recording r = recording(gpt2_kernels());
  const int64_t begin = r.launches.front().start_ns, end = r.launches.back().end_ns;
  LaunchRecord memset;
  memset.activity = Activity::memset;
  memset.step = kStep;
  memset.index = 0;
  memset.name = "memset";
  memset.path = "step/backward/-/zero_grad";
  memset.stream = 7;
  memset.bytes = 80'000'000;
  memset.start_ns = end + 2000;
  memset.end_ns = end + 102'000;
  LaunchRecord copy = memset;
  copy.activity = Activity::copy;
  copy.name = "copy DtoH";
  copy.path = "step/other/-/copy";
  copy.bytes = 8;
  copy.start_ns = end + 110'000;
  copy.end_ns = end + 112'000;
  r.launches.push_back(memset);
  r.launches.push_back(copy);
  r.steps.front().copies = r.steps.front().memsets = 1;
  r.steps.front().gpu_end_ns = copy.end_ns;

  // Steps 2..9 timed, 10..12 traced: 5 ms apart, traced ones 5.1 ms.
  const int64_t window = r.steps.front().gpu_end_ns - begin;
  for (int64_t n = 2; n < 10; ++n) r.steps.push_back(step(n, Phase::timed, 500'000'000 + n * 5'000'000, 4'000'000));
  for (int64_t n = 10; n < 12; ++n) {
    StepRecord s = step(n, Phase::activity, begin - 5000 - (12 - n) * 5'100'000, 4'000'000);
    s.gpu_begin_ns = begin - (12 - n) * 5'100'000;
    s.gpu_end_ns = s.gpu_begin_ns + window;
    s.kernels = r.steps.front().kernels;
    s.copies = s.memsets = 1;
    r.steps.push_back(s);
  }
  for (const LaunchRecord& l : r.launches) {
    const auto t = static_cast<double>(l.end_ns - l.start_ns);
    r.stats.push_back({l.activity, l.index, 3, t, t, t - 100, t + 100});
  }

  CounterSet whole;
  whole.name = "pass";
  whole.metrics = {"dram__bytes_read.sum", "dram__bytes_write.sum"};
  whole.launches = whole.ranges = 1;
  r.counter_sets.push_back(whole);
  CounterRecord pass;
  pass.set = "pass";
  pass.step = 14;
  pass.pass = "backward";
  pass.values = {200e6 + 2 * 188e6 + 1e6, 60e6 + 2 * 168e6 + 1e6 + 80e6};
  r.counters.push_back(pass);
  return r;
}

RunInfo gpt2_run() {
  RunInfo run;
  run.command = "stepscope train --trainer fp32 --model tiny";
  run.trainer = "fp32";
  run.device = "Test GPU";
  run.matmul = "fp32";
  run.layers = 2;
  run.heads = 4;
  run.channels = 128;
  run.vocab_size = 50257;
  run.padded_vocab = 50304;
  run.max_seq_len = 1024;
  run.batch_size = 4;
  run.seq_len = 1024;
  run.accumulation = 1;
  run.tokens_per_step = 4096;
  run.model_flops = 2.5e10;
  run.seed = 1337;
  run.data = {"synthetic"};
  run.memory_bytes = {{"parameters", 4e8}};
  for (int64_t i = 0; i < 24; ++i)
    run.steps.push_back({i + 1, 11.0 - 0.1 * static_cast<double>(i), 1.0, 5e6 + 1e4 * static_cast<double>(i % 8)});
  for (const Kernel& k : gpt2_kernels()) run.work.push_back({k.path, 0, 0.5 * (k.read_bytes + k.write_bytes)});
  for (RunWork& w : run.work)
    if (w.path.find("qkv") != std::string::npos || w.path.find("lm_head") != std::string::npos) w.flops = 1e9;
  return run;
}

Recording cpu_recording() {
  Recording r = gpt2_recording();
  r.session = {};
  r.session.producer = "cpu";
  r.session.program = "stepscope train --trainer reference --model tiny";
  r.session.device = {{"name", "CPU"}};
  r.counter_sets.clear();
  r.counters.clear();
  r.environment.clear();
  r.launches.resize(r.launches.size() - 2);
  r.stats.clear();
  for (LaunchRecord& l : r.launches) {
    l.activity = Activity::cpu_op;
    l.name = "op_" + std::to_string(l.index);
    l.stream = l.registers = l.correlation = 0;
    l.grid = l.block = {};
  }
  for (StepRecord& s : r.steps) {
    s.copies = s.memsets = 0;
    if (s.gpu_end_ns) s.gpu_end_ns -= 112'000;
  }
  return r;
}

RunInfo cpu_run() {
  RunInfo run = gpt2_run();
  run.command = "stepscope train --trainer reference --model tiny";
  run.trainer = "reference";
  run.device = "CPU, 2 threads";
  return run;
}

Ceilings round_ceilings() {
  Ceilings c;
  c.copy_bytes_per_s = c.read_bytes_per_s = c.write_bytes_per_s = 1e12;
  c.matmul_flops_per_s = {{"fp32", 1e13}, {"tf32", 4e13}, {"bf16", 8e13}};
  c.device = "Test GPU";
  c.uuid = "GPU-0";
  c.driver = "580.1";
  c.measured_at = "2026-11-20T12:00:00Z";
  return c;
}

AttributionInput input() {
  AttributionInput in;
  in.roofline.ceilings = round_ceilings();
  in.roofline.chip = "GH100";
  in.roofline.sm_count = 100;
  return in;
}

ProfileOptions options() {
  ProfileOptions o;
  o.first_timed_step = 10;
  o.timed_steps = 8;
  o.git_revision = "abc1234";
  o.build_type = "RelWithDebInfo";
  o.profiled_at = "2026-11-20T12:00:00Z";
  return o;
}

bool is_missing(const std::vector<MissingRecord>& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const MissingRecord& m) { return m.name == name; });
}

const MissingRow* missing_row(const ProfileDocument& d, const std::string& name) {
  for (const MissingRow& m : d.missing)
    if (m.name == name) return &m;
  return nullptr;
}

const Group* pass_group(const Attribution& a, const std::string& pass) {
  for (const Group& g : a.passes)
    if (pass_words()[static_cast<size_t>(*g.pass)] == pass) return &g;
  return nullptr;
}

}  // namespace fixture
