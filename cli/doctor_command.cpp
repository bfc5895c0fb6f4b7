// `stepscope doctor` says what can be measured on this machine. Each line is one thing that could stop a measurement: what the doctor found,
// what it means, and who must do what. The doctor tries the counters instead of asking for them: a child process profiles a tiny step.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/errors.h"
#include "base/json_text.h"
#include "base/nvml.h"
#include "base/process.h"
#include "base/temporary_folder.h"
#include "cli/commands.h"
#include "cli/counter_permission.h"
#include "cli/cuda_libraries.h"
#include "cli/gpu.h"
#include "cli/link_sweep.h"
#include "gpt2/data/pretokenizer.h"
#include "profiler/ingest/nsys_export.h"
#include "profiler/recording/collector.h"
#include "profiler/recording/recording.h"
#include "profiler/report/html.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "gpt2/distributed/nccl.h"
#include "mixed/attention_cudnn.h"
#endif

namespace cli {
namespace {

enum class Status { ok, warn, fail, skip };

struct Line {
  std::string what;
  Status status;
  std::string seen;
  std::string cure;  // empty when ok
};

class Report {
 public:
  void add(std::string what, Status status, std::string seen, std::string cure = "") {
    lines.push_back({std::move(what), status, std::move(seen), std::move(cure)});
  }
  bool failed() const {
    return std::any_of(lines.begin(), lines.end(), [](const Line& l) { return l.status == Status::fail; });
  }
  std::vector<Line> lines;
};

const char* status_word(Status s) {
  switch (s) {
    case Status::ok:
      return "ok";
    case Status::warn:
      return "warn";
    case Status::fail:
      return "FAIL";
    case Status::skip:
      return "skip";
  }
  return "?";
}

void check_libraries(Report& r) {
#ifdef STEPSCOPE_WITH_CUDA
  const FoundLibrary cublas = find_cublas_lt(STEPSCOPE_CUDA_MAJOR);
  r.add("cuBLAS", cublas.version ? Status::ok : Status::fail,
        cublas.version ? fmt::format("{}", *cublas.version) : cublas.file + " cannot be loaded",
        cublas.version ? "" : "put the CUDA toolkit's lib64 on the loader path (LD_LIBRARY_PATH or ldconfig)");
  const FoundLibrary cupti = find_cupti(STEPSCOPE_CUDA_MAJOR);
  r.add(
      "CUPTI", cupti.version ? Status::ok : Status::fail,
      cupti.version ? fmt::format("API {}", *cupti.version) : cupti.file + " cannot be loaded",
      cupti.version ? "" : "install the toolkit's CUPTI and put it on the loader path; without it there are no kernel times and counters");
#endif
  const bool nvperf = dlopen("libnvperf_host.so", RTLD_NOW | RTLD_LOCAL) != nullptr;
  r.add("nvperf", nvperf ? Status::ok : Status::warn, nvperf ? "libnvperf_host.so" : "libnvperf_host.so cannot be loaded",
        nvperf ? "" : "it belongs beside libcupti; without it there are times but no counters");
}

// What `train` of several ranks finds: the library that would carry their gradients, and who could start them.
void check_several_gpus(Report& r) {
#ifdef STEPSCOPE_WITH_CUDA
  if (const auto why = gpt2::distributed::why_no_nccl())
    r.add("NCCL", gpu_status().count > 2 ? Status::warn : Status::skip, "not found; only more than two GPUs, or several hosts, need it",
          *why);
  else
    r.add("NCCL", Status::ok, gpt2::distributed::nccl_version());
#endif
  std::string starters;
  for (const char* tool : {"mpirun", "mpiexec", "torchrun", "srun"})
    if (!stepscope::program_in_path(tool).empty()) starters += (starters.empty() ? "" : ", ") + std::string(tool);
  r.add("starters of ranks", starters.empty() ? Status::skip : Status::ok,
        starters.empty() ? "no mpirun, mpiexec, torchrun or srun; `train --gpus N` needs none on one host" : starters);
}

// Each is needed by one output only. What was built without it says so itself, and exits with 3.
void check_optional_parts(Report& r) {
  const auto part = [&](const char* what, bool built, const char* package, const char* lost) {
    r.add(what, built ? Status::ok : Status::warn, built ? "built in" : fmt::format("built without it: {}", lost),
          built ? "" : fmt::format("install {}, delete the build folder and build again", package));
  };
  part("Chart.js", profiler::has_charts(), "libjs-chart.js", "no HTML reports");
  part("SQLite", profiler::reads_nsys_exports(), "libsqlite3-dev", "`ingest` reads no exports of nsys");
  part("ICU", gpt2::unicode_tables_built_in(), "libicu-dev", "`data` cannot tokenize text");
#ifdef STEPSCOPE_WITH_CUDA
  // The trainer's own answer: whether cudnn-frontend was compiled in, and whether libcudnn loads.
  auto no_cudnn = mixed::why_no_cudnn();
  constexpr std::string_view kTitle = "cuDNN attention: ";  // the reason begins with it, for places that have no title
  if (no_cudnn && no_cudnn->starts_with(kTitle)) no_cudnn->erase(0, kTitle.size());
  r.add("cuDNN attention", no_cudnn ? Status::warn : Status::ok, no_cudnn ? *no_cudnn : "cuDNN " + mixed::cudnn_version(),
        no_cudnn ? "without it the mixed trainer uses its own attention; on GPUs before Hopper that takes about twice as long" : "");
#endif
}

void check_permission(Report& r) {
  std::ifstream params("/proc/driver/nvidia/params");
  const CounterPermission permission = counter_permission(params, geteuid() == 0);
  r.add("counter permission", permission.cure.empty() ? Status::ok : Status::warn, permission.seen, permission.cure);
}

// The trainer itself is the probe: a `tiny` step under the collector must give kernels with times and counters.
void probe_collector(Report& r, const std::string& program) {
  const auto library = profiler::collector_library();
  if (!library) {
    r.add("collector", Status::fail, "lib/libstepscope_collect.so is not beside the program", "build the target stepscope_collect");
    return;
  }
  const stepscope::TemporaryFolder folder;
  profiler::CollectPlan plan;
  plan.output = folder.file("probe.recording");
  plan.phases = {{profiler::Phase::warmup, 2}, {profiler::Phase::counters, 1}, {profiler::Phase::activity, 4}};
  const stepscope::ChildResult child = stepscope::run_child(
      {program, "train", "--trainer", "fp32", "--model", "tiny", "--batch-size", "2", "--seq-len", "64", "--steps", "8", "--quiet"},
      profiler::collector_environment(plan, folder.file("plan.json"), *library), true);
  if (!child.exited || child.exit_code != 0) {
    r.add("collector", Status::fail,
          fmt::format("the probe (a tiny training step) ended with {} {}", child.exited ? "exit code" : "signal",
                      child.exited ? child.exit_code : child.signal),
          "its own message is above");
    return;
  }
  const profiler::Recording recording = profiler::load_recording(plan.output);
  const auto timed = std::count_if(recording.launches.begin(), recording.launches.end(), [](const profiler::LaunchRecord& l) {
    return l.activity == profiler::Activity::kernel && l.end_ns > l.start_ns && l.start_ns > 0;
  });
  r.add("kernel times", timed > 0 ? Status::ok : Status::fail, fmt::format("{} kernels of a tiny step timed", timed),
        timed > 0 ? "" : "another profiler may hold CUPTI (nsys, ncu, torch.profiler, DCGM)");
  std::string why;
  for (const profiler::MissingRecord& m : recording.missing) why += (why.empty() ? "" : "; ") + m.name + ": " + m.detail;
  const size_t counted = recording.counters.size();
  r.add("hardware counters", counted > 0 ? Status::ok : Status::fail,
        counted > 0 ? fmt::format("read for {} kernels in one pass", counted) : why,
        counted > 0 ? "" : "times work without them; DRAM bandwidth and tensor-core use do not");
}

// "-" for a value that this GPU or driver does not tell.
std::string shown(const stepscope::nvml::Reading<double>& reading) { return reading ? fmt::format("{:.0f}", *reading.value) : "-"; }

void check_nvml(Report& r, const std::string& pci_bus_id) {
  std::string why;
  const auto device = stepscope::nvml::Device::open(why, pci_bus_id);
  if (!device) {
    r.add("NVML", Status::warn, why, "clocks, power and throttling cannot be recorded");
    return;
  }
  r.add("driver", Status::ok, device->driver_version().value_or("-"));
  r.add("clocks", Status::ok,
        fmt::format("SM {} of {} MHz, memory {} MHz, {} of {} W, {} C", shown(device->sm_clock_mhz()), shown(device->max_sm_clock_mhz()),
                    shown(device->memory_clock_mhz()), shown(device->power_w()), shown(device->power_limit_w()),
                    shown(device->temperature_c())));
  if (const auto energy = device->energy_mj(); !energy) r.add("energy", Status::warn, energy.why_not, "joules cannot be recorded");
  const auto reasons = device->throttle_reasons();
  const bool slowed = stepscope::nvml::slowdowns(reasons.value_or(0)) != 0;
  const std::string seen = !reasons ? reasons.why_not : slowed ? stepscope::nvml::throttle_text(*reasons.value) : "none";
  r.add("throttling now", slowed || !reasons ? Status::warn : Status::ok, seen,
        slowed ? "wait until the GPU is idle and cool; a profile records the reasons during its own run" : "");
  const auto processes = device->compute_processes();
  r.add("other GPU processes", processes.value == 0 ? Status::ok : Status::warn,
        processes ? fmt::format("{}", *processes.value) : processes.why_not,
        processes.value > 0 ? "they share the GPU's time and bandwidth: measure when they are gone" : "");
  if (device->mig_enabled().value == true)
    r.add("MIG", Status::fail, "enabled", "counters are not available on a MIG slice: the administrator can give a whole GPU");
}

void check_gpu(Report& r, const std::string& program) {
  const GpuStatus gpu = gpu_status();
  if (!gpu.present) {
    r.add("GPU", Status::fail, "none", gpu.why_not);
    return;
  }
  r.add("GPU", Status::ok,
        fmt::format("{}, compute capability {}.{}, {} SMs, {:.0f} GiB", gpu.name, gpu.compute_major, gpu.compute_minor, gpu.multiprocessors,
                    static_cast<double>(gpu.memory_bytes) / (1 << 30)));
  if (gpu.compute_major < 8)
    r.add("architecture", Status::fail, fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor),
          "device code is built for sm_80 and newer");
  check_nvml(r, gpu.pci_bus_id);
  check_libraries(r);
  check_permission(r);
  // A probe that cannot be started or read is one line of the answer: the other lines may say why.
  try {
    probe_collector(r, program);
  } catch (const std::exception& e) {
    r.add("collector", Status::fail, fmt::format("the probe (a tiny training step) failed: {}", e.what()),
          "without it nobody knows whether kernel times and counters can be recorded");
  }
}

void check_tools(Report& r) {
  const auto find = [](const char* tool) { return stepscope::program_in_path(tool, "/usr/local/cuda/bin"); };
  for (const char* tool : {"ncu", "compute-sanitizer"}) {
    const std::string file = find(tool);
    r.add(tool, file.empty() ? Status::skip : Status::ok, file.empty() ? "not found; only needed to compare and to check kernels" : file);
  }
  for (const char* tool : {"curl", "tar"}) {
    const std::string file = find(tool);
    r.add(tool, file.empty() ? Status::skip : Status::ok, file.empty() ? "not found; only `data --fetch` needs it" : file,
          file.empty() ? fmt::format("install the package {}", tool) : "");
  }
  std::string browser = find("chromium-headless-shell");
  if (browser.empty()) browser = find("chromium");
  r.add("Chromium", browser.empty() ? Status::skip : Status::ok,
        browser.empty() ? "not found; only the tests that open HTML reports need it" : browser,
        browser.empty() ? "install chromium-headless-shell or chromium" : "");
  struct statvfs disk {};
  if (statvfs(".", &disk) == 0) {
    const double gb = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize) * 1e-9;
    r.add("disk", gb > 1 ? Status::ok : Status::warn, fmt::format("{:.1f} GB free here", gb), gb > 1 ? "" : "raw traces may not fit");
  }
}

}  // namespace

void add_doctor_command(Command& app, const CommandLine& line, int& exit_code) {
  Command* c = app.add_subcommand("doctor", "Say what can be measured on this machine, and what stops the rest");
  auto json = std::make_shared<bool>(false);
  c->add_flag("--json", *json, "print JSON");
  auto sweep = std::make_shared<LinkSweepFlags>();
  add_link_sweep_flags(*c, *sweep);
  c->footer(
      "Exit code 3 when the main job (a GPU profile with counters) cannot run here.\nExamples:\n  stepscope doctor\n"
      "  stepscope doctor --gpus 2 --links links.json");
  c->callback([json, sweep, line, all = c->arguments(), &exit_code] {
    if (asked_for(*sweep)) {
      if (*json) throw stepscope::InputError("--json: --gpus N prints a table, and --links FILE writes JSON; leave it out");
      exit_code = sweep_links(*sweep, line);
      return;
    }
    only_these(all, {"--json"}, "expected --gpus N with it");
    Report r;
    check_gpu(r, std::filesystem::read_symlink("/proc/self/exe").string());
    check_several_gpus(r);
    check_optional_parts(r);
    check_tools(r);
    if (*json) {
      nlohmann::json out = nlohmann::json::array();
      for (const Line& l : r.lines) {
        nlohmann::json j{{"what", l.what}, {"status", status_word(l.status)}, {"seen", l.seen}};
        if (!l.cure.empty()) j["cure"] = l.cure;
        out.push_back(j);
      }
      const nlohmann::json answer{{"schema", "stepscope.doctor/1"}, {"can_profile", !r.failed()}, {"checks", out}};
      fmt::print("{}\n", stepscope::json_text(answer, 1));
    } else {
      for (const Line& l : r.lines) {
        fmt::print("{:<4}  {:<20} {}\n", status_word(l.status), l.what, l.seen);
        if (!l.cure.empty()) fmt::print("      {:<20} -> {}\n", "", l.cure);
      }
      fmt::print("\n{}\n", r.failed() ? "The main job, a GPU profile with counters, cannot run here."
                                      : "Everything that `stepscope profile --steps 50` needs is here.");
    }
    if (r.failed()) exit_code = 3;
  });
}

}  // namespace cli
