// The doors of the library. The CUDA driver calls InitializeInjection inside cuInit (CUDA_INJECTION64_PATH),
// NVTX calls InitializeInjectionNvtx2 at the program's first NVTX call (NVTX_INJECTION64_PATH); either may
// come first, and a program may have only one of them. What to do is in the plan file named by
// STEPSCOPE_COLLECT; without it the library does nothing at all.
//
// The recording belongs to the first process that comes with CUDA or a step: its children inherit the
// environment, and each that finds the output taken writes OUTPUT.PID instead. A fork without exec never
// touches the parent's file. A rank of a run of several writes OUTPUT with its rank in the name, whichever
// process started it.
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/read_file.h"
#include "profiler/collect/cupti_backend.h"
#include "profiler/collect/environment_sampler.h"
#include "profiler/collect/program_collector.h"
#include "profiler/collect/rank.h"
#include "profiler/collect/recorder.h"
#include "profiler/collect/step_collector.h"

namespace profiler::collect {
namespace {

constexpr unsigned kProgramFlushMs = 1000;

// Everything of one process. Never destroyed: callbacks may come until the very end.
struct Session {
  Session(CollectPlan plan, const std::optional<RankRecord>& rank)
      : recorder(claimed(rank ? file_of_rank(plan.output, rank->rank) : plan.output)), backend(plan.mode == "steps" ? 0 : kProgramFlushMs) {
    if (rank) {
      recorder.write(*rank);
      if (!plan.raw_trace.empty()) plan.raw_trace = file_of_rank(plan.raw_trace, rank->rank);
    }
    if (plan.mode == "program_activity") {
      collector = std::make_unique<ProgramTracer>(plan, backend, recorder);
    } else if (plan.mode == "program_counters") {
      collector = std::make_unique<ProgramCounter>(plan, backend, recorder);
    } else {
      sampler = std::make_unique<EnvironmentSampler>([this](const EnvironmentSample& s) { recorder.write(s); },
                                                     [this](const EnergySample& s) { recorder.write(s); },
                                                     [this](const Failure& f) { recorder.report(f); });
      StepCollector::Hooks hooks;
      hooks.described = [this](const SessionRecord& s) {
        const auto bus = s.device.find("pci_bus_id");
        sampler->start(bus == s.device.end() ? "" : bus->second);
      };
      hooks.phase = [this](Phase phase) { sampler->set_phase(phase); };
      hooks.finished = [this] { sampler->stop(); };
      collector = std::make_unique<StepCollector>(plan, backend, recorder, hooks, rank.has_value());
    }
    backend.set_observer(*collector);
  }

  // The plan's output, or OUTPUT.PID when another process has taken it. The claim is atomic: exclusive
  // creation.
  static std::string claimed(const std::string& output) {
    const int file = open(output.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (file >= 0) {
      close(file);
      return output;
    }
    if (errno != EEXIST) return output;  // the writer will say what is wrong
    const std::string own = output + "." + std::to_string(getpid());
    say("recording " + output + " exists: another process writes it; this one writes " + own);
    return own;
  }

  Recorder recorder;
  CuptiBackend backend;
  std::unique_ptr<EnvironmentSampler> sampler;
  std::unique_ptr<Collector> collector;
};

std::mutex g_mutex;
bool g_tried = false;
// A child without exec: the session is the parent's, and its threads do not exist here.
std::atomic<bool> g_forked = false;
std::atomic<Session*> g_session = nullptr;

extern "C" void stepscope_at_exit() {
  Session* session = g_session;
  if (!session || g_forked) return;
  try {
    session->collector->process_ends();
    if (session->sampler) session->sampler->stop();
  } catch (...) {
    say("the recording could not be finished");
  }
}

// The parent's recording is not the child's to finish, and the parent's threads do not exist here.
extern "C" void stepscope_forked_child() {
  g_forked = true;
  if (Session* parents = g_session) parents->collector->abandon();
}

Session* session() {
  if (g_forked) return nullptr;
  if (Session* s = g_session) return s;
  const std::lock_guard lock(g_mutex);
  if (g_tried) return g_session;
  g_tried = true;
  const char* plan_file = std::getenv("STEPSCOPE_COLLECT");
  if (!plan_file || !*plan_file) return nullptr;
  try {
    const CollectPlan plan = collect_plan_from_json(stepscope::read_file(plan_file));
    const auto rank = rank_of_process(plan.job);
    if (!plan.job.empty() && !rank) return nullptr;  // the process that starts the ranks has nothing to record
    g_session = new Session(plan, rank);
    std::atexit(stepscope_at_exit);
    pthread_atfork(nullptr, nullptr, stepscope_forked_child);
  } catch (const std::exception& e) {
    say(std::string("nothing is collected: ") + e.what());
  }
  return g_session;
}

// ---- NVTX

constexpr uint64_t kDefaultDomain = 0;

std::string narrow(const wchar_t* text) {
  std::string out;
  for (; text && *text; ++text) {
    const auto c = static_cast<uint32_t>(*text);
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xc0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      out += static_cast<char>(0xe0 | (c >> 12));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
      out += static_cast<char>(0x80 | (c & 0x3f));
    } else {
      out += static_cast<char>(0xf0 | ((c >> 18) & 0x07));
      out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
      out += static_cast<char>(0x80 | (c & 0x3f));
    }
  }
  return out;
}

// Registered strings and domains are handles into these; both live as long as the process.
std::mutex g_strings_mutex;
std::deque<std::string>& strings() {
  static auto* all = new std::deque<std::string>;
  return *all;
}
const std::string* keep(std::string text) {
  const std::lock_guard lock(g_strings_mutex);
  return &strings().emplace_back(std::move(text));
}

uint64_t domain_id(nvtxDomainHandle_t domain) { return reinterpret_cast<uint64_t>(domain); }

template <class F>
int or_minus_one(F&& f) {
  try {
    return f();
  } catch (...) {
    return -1;
  }
}

int push(uint64_t domain, std::string_view name) {
  return or_minus_one([&] {
    Session* s = session();
    return s ? s->collector->range_push(domain, name) : -1;
  });
}
int pop(uint64_t domain) {
  return or_minus_one([&] {
    Session* s = session();
    return s ? s->collector->range_pop(domain) : -1;
  });
}
int push_attributes(uint64_t domain, const nvtxEventAttributes_t* a) {
  if (!a) return push(domain, "");
  switch (a->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return push(domain, a->message.ascii ? a->message.ascii : "");
    case NVTX_MESSAGE_TYPE_UNICODE:
      return or_minus_one([&] { return push(domain, narrow(a->message.unicode)); });
    case NVTX_MESSAGE_TYPE_REGISTERED: {
      const auto* text = reinterpret_cast<const std::string*>(a->message.registered);
      return push(domain, text ? std::string_view(*text) : std::string_view());
    }
    default:
      return push(domain, "");
  }
}

int NVTX_API range_push_ex(const nvtxEventAttributes_t* a) { return push_attributes(kDefaultDomain, a); }
int NVTX_API range_push_a(const char* name) { return push(kDefaultDomain, name ? name : ""); }
int NVTX_API range_push_w(const wchar_t* name) {
  return or_minus_one([&] { return push(kDefaultDomain, narrow(name)); });
}
int NVTX_API range_pop() { return pop(kDefaultDomain); }
int NVTX_API domain_push_ex(nvtxDomainHandle_t d, const nvtxEventAttributes_t* a) { return push_attributes(domain_id(d), a); }
int NVTX_API domain_pop(nvtxDomainHandle_t d) { return pop(domain_id(d)); }

template <class Handle>
Handle handle_of(std::string text) {
  try {
    return reinterpret_cast<Handle>(const_cast<std::string*>(keep(std::move(text))));
  } catch (...) {
    return nullptr;
  }
}
nvtxStringHandle_t NVTX_API register_string_a(nvtxDomainHandle_t, const char* text) {
  return handle_of<nvtxStringHandle_t>(text ? text : "");
}
nvtxStringHandle_t NVTX_API register_string_w(nvtxDomainHandle_t, const wchar_t* text) {
  return handle_of<nvtxStringHandle_t>(narrow(text));
}
nvtxDomainHandle_t NVTX_API create_domain_a(const char* name) { return handle_of<nvtxDomainHandle_t>(name ? name : ""); }
nvtxDomainHandle_t NVTX_API create_domain_w(const wchar_t* name) { return handle_of<nvtxDomainHandle_t>(narrow(name)); }

template <class F>
void put(NvtxFunctionTable table, unsigned size, unsigned slot, F function) {
  if (slot < size && table[slot]) *table[slot] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace
}  // namespace profiler::collect

#define STEPSCOPE_EXPORT extern "C" __attribute__((visibility("default")))

STEPSCOPE_EXPORT int InitializeInjection() {
  using namespace profiler::collect;
  try {
    if (Session* s = session()) {
      if (const Outcome failed = s->backend.subscribe()) s->recorder.report(*failed);
      s->collector->cuda_ready();
    }
  } catch (...) {
    say("collecting could not be started");
  }
  return 1;
}

STEPSCOPE_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  using namespace profiler::collect;
  if (!std::getenv("STEPSCOPE_COLLECT")) return 0;
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (!callbacks || callbacks->struct_size < sizeof *callbacks) return 0;
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) || !table) return 0;
  put(table, size, NVTX_CBID_CORE_RangePushEx, range_push_ex);
  put(table, size, NVTX_CBID_CORE_RangePushA, range_push_a);
  put(table, size, NVTX_CBID_CORE_RangePushW, range_push_w);
  put(table, size, NVTX_CBID_CORE_RangePop, range_pop);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) && table) {
    put(table, size, NVTX_CBID_CORE2_DomainRangePushEx, domain_push_ex);
    put(table, size, NVTX_CBID_CORE2_DomainRangePop, domain_pop);
    put(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, register_string_a);
    put(table, size, NVTX_CBID_CORE2_DomainRegisterStringW, register_string_w);
    put(table, size, NVTX_CBID_CORE2_DomainCreateA, create_domain_a);
    put(table, size, NVTX_CBID_CORE2_DomainCreateW, create_domain_w);
  }
  return 1;
}
