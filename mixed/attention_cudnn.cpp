// The one translation unit with cudnn-frontend. Its graphs describe packed tensors by strides, so q, k, v and their gradients are read
// and written where the linear layers have them, and nothing is transposed in memory.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING  // libcudnn is opened below; this file links nothing of it
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <dlfcn.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <cudnn_frontend.h>

#include "base/errors.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"
#include "mixed/attention_cudnn.h"
#include "mixed/attention_plans.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace mixed {
namespace {

namespace fe = cudnn_frontend;

// Attention with these strides, and log-sum-exp as its statistics, is older than this; older versions were not tried.
constexpr size_t kOldest = 90500;

std::string version_text(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

struct Library {
  size_t version = 0;
  std::optional<std::string> missing;
};

Library open_library() {
  Library library;
  const char* named = std::getenv("STEPSCOPE_CUDNN_LIBRARY");
  const std::string file = named != nullptr && *named != 0 ? named : "libcudnn.so.9";
  fe::cudnn_dlhandle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (fe::cudnn_dlhandle == nullptr) {
    const char* why = dlerror();
    library.missing = "cuDNN attention: " + file + " cannot be opened (" + (why != nullptr ? why : "no reason given") +
                      "); install cuDNN 9, or name the file in STEPSCOPE_CUDNN_LIBRARY";
    return library;
  }
  library.version = fe::detail::get_backend_version();
  if (library.version < kOldest)
    library.missing =
        "cuDNN attention: " + file + " is cuDNN " + version_text(library.version) + ", at least " + version_text(kOldest) + " is needed";
  return library;
}

const Library& library() {
  static const Library the_one = open_library();
  return the_one;
}

void require_library() {
  if (library().missing) throw stepscope::MachineError(*library().missing);
}

void check(fe::error_t status, const std::string& what) {
  if (status.is_bad()) throw stepscope::MachineError("cuDNN attention: " + what + ": " + status.get_message());
}

void check(cudnnStatus_t status, const std::string& what) {
  if (status != CUDNN_STATUS_SUCCESS) throw gpt2::cuda::CallError("cuDNN attention: " + what + ": " + fe::detail::get_error_string(status));
}

enum Tensor : int64_t { kQ = 1, kK, kV, kOut, kStats, kDout, kDq, kDk, kDv };

// One of the plans that cuDNN offers for a graph.
struct Offer {
  int64_t index = 0;  // in the graph's list
  std::string name;   // engine and knobs: the same in every process of a cuDNN version
  int64_t workspace_bytes = 0;
};

// A graph and its plans. `offers` are what a search times, the library's first choice in front; they are built when a search is first
// asked for, all of them or, where an earlier process has searched, the one that it chose.
struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;
  std::string problem;
  Offer first;
  std::vector<Offer> offers;
  std::optional<Offer> measured;
};

using Tensors = std::unordered_map<int64_t, void*>;

constexpr int kRounds = 8;

std::string describe(const CudnnAttentionShape& s) {
  return "B=" + std::to_string(s.B) + " T=" + std::to_string(s.T) + " C=" + std::to_string(s.C) + " NH=" + std::to_string(s.NH);
}

class Attention {
 public:
  static Attention& instance() {
    static Attention the_one;
    return the_one;
  }

  Plan& forward(const CudnnAttentionShape& s) {
    return plan({s.B, s.T, s.C, s.NH, 0}, [&] { return build_forward(s); });
  }
  Plan& backward(const CudnnAttentionShape& s, bool deterministic) {
    return plan({s.B, s.T, s.C, s.NH, deterministic ? 2 : 1}, [&] { return build_backward(s, deterministic); });
  }

  // Of the plan that will run; before a search, of the hungriest that it will time.
  int64_t workspace_bytes(Plan& p, CudnnPlan choice) {
    const std::lock_guard lock(mutex_);
    if (choice == CudnnPlan::heuristic) return p.first.workspace_bytes;
    collect_offers(p);
    if (p.measured) return p.measured->workspace_bytes;
    int64_t most = 0;
    for (const Offer& offer : p.offers) most = std::max(most, offer.workspace_bytes);
    return most;
  }

  void run(Plan& p, CudnnPlan choice, const Tensors& tensors, void* workspace, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    check(fe::detail::set_stream(handle_, stream), "setting the stream");
    if (choice == CudnnPlan::measured) {
      collect_offers(p);
      if (!p.measured && !is_capturing(stream)) search(p, tensors, workspace, stream);
    }
    const Offer& offer = choice == CudnnPlan::measured && p.measured ? *p.measured : p.first;
    check(launch(p, offer, tensors, workspace), "launch");
  }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int>;

  Attention() {
    require_library();
    // Not by check(): a machine on which cuDNN does not start has other attention kernels, and the device works.
    if (const cudnnStatus_t status = fe::detail::create_handle(&handle_); status != CUDNN_STATUS_SUCCESS)
      throw stepscope::MachineError(std::string("cuDNN attention: creating its handle: ") + fe::detail::get_error_string(status));
  }

  fe::error_t launch(const Plan& p, const Offer& offer, const Tensors& tensors, void* workspace) const {
    return p.graph->execute_plan_at_index(handle_, const_cast<Tensors&>(tensors), workspace, offer.index);  // reads it only
  }

  static bool is_capturing(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    STEPSCOPE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    return status != cudaStreamCaptureStatusNone;
  }

  // What the graph offers under this name, built; nothing where it cannot be built or takes too much workspace.
  std::optional<Offer> build(Plan& p, int64_t index) const {
    Offer offer{.index = index};
    if (p.graph->get_plan_name_at_index(index, offer.name).is_bad()) return std::nullopt;
    if (offer.name == p.first.name) return p.first;
    if (p.graph->build_plan_at_index(handle_, index).is_bad()) return std::nullopt;
    if (p.graph->get_workspace_size_plan_at_index(index, offer.workspace_bytes).is_bad()) return std::nullopt;
    if (offer.workspace_bytes > std::max(kMostSearchedWorkspaceBytes, p.first.workspace_bytes)) return std::nullopt;
    return offer;
  }

  void collect_offers(Plan& p) {
    if (!p.offers.empty()) return;
    p.offers.push_back(p.first);
    const std::optional<std::string> known = cache_.find(p.problem);
    for (int64_t i = 0; i < p.graph->get_execution_plan_count(); ++i) {
      std::string name;
      if (p.graph->get_plan_name_at_index(i, name).is_bad()) continue;
      if (known) {
        if (name == *known) p.measured = build(p, i);
        if (p.measured) return;
        continue;
      }
      const auto is_it = [&](const Offer& offer) { return offer.name == name; };
      if (std::any_of(p.offers.begin(), p.offers.end(), is_it)) continue;
      if (const auto offer = build(p, i)) p.offers.push_back(*offer);
    }
    if (known) p.measured = p.first;  // this library no longer offers what was chosen
  }

  // Times every offer on the tensors of this launch, which are only written again with the same values. Rounds run forth and back, so
  // that a clock that moves hits all alike.
  void search(Plan& p, const Tensors& tensors, void* workspace, cudaStream_t stream) {
    struct Entry {
      Offer offer;
      int launches = 1;
      std::vector<double> times;
    };
    gpt2::cuda::Event begin, end;
    const auto microseconds = [&](const Offer& offer, int launches) {
      begin.record(stream);
      for (int i = 0; i < launches; ++i) check(launch(p, offer, tensors, workspace), "launch");
      end.record(stream);
      end.wait();
      return gpt2::cuda::elapsed_ns(begin, end) * 1e-3 / launches;
    };
    std::vector<Entry> entries;
    double best = 1e30;
    for (const Offer& offer : p.offers) {
      if (launch(p, offer, tensors, workspace).is_bad()) continue;  // some offers fail at launch; they are out of the race
      const double once = microseconds(offer, 2);
      best = std::min(best, once);
      entries.push_back({offer, std::clamp(static_cast<int>(1500.0 / once), 2, 40), {once}});
    }
    if (entries.empty() || entries.front().offer.name != p.first.name)
      throw stepscope::MachineError("cuDNN attention: " + p.problem + ": its first plan cannot be launched");
    // Far behind after two launches: not worth eight rounds. The first stays, all are measured against it.
    entries.erase(std::remove_if(entries.begin() + 1, entries.end(), [&](const Entry& e) { return e.times.front() > 1.5 * best; }),
                  entries.end());
    for (Entry& e : entries) e.times.clear();
    for (int round = 0; round < kRounds; ++round)
      for (size_t i = 0; i < entries.size(); ++i) {
        Entry& e = entries[round % 2 == 0 ? i : entries.size() - 1 - i];
        e.times.push_back(microseconds(e.offer, e.launches));
      }
    std::vector<std::vector<double>> times;
    for (const Entry& e : entries) times.push_back(e.times);
    const size_t chosen = fastest_beyond_noise(times);
    p.measured = entries[chosen].offer;
    cache_.remember(p.problem, p.measured->name, *std::min_element(times[chosen].begin(), times[chosen].end()),
                    *std::min_element(times.front().begin(), times.front().end()));
  }

  template <class Build>
  Plan& plan(const Key& key, const Build& build) {
    const std::lock_guard lock(mutex_);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, build()).first;
    return found->second;
  }

  static std::shared_ptr<fe::graph::Graph> empty_graph() {
    auto graph = std::make_shared<fe::graph::Graph>();
    graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    return graph;
  }

  // (B, NH, T, HS) with channels of one token contiguous and `parts` * C channels from token to token.
  static fe::graph::Tensor_attributes heads(const CudnnAttentionShape& s, int64_t parts, Tensor id, const char* name) {
    const int64_t HS = s.C / s.NH;
    return fe::graph::Tensor_attributes()
        .set_name(name)
        .set_uid(id)
        .set_dim({s.B, s.NH, s.T, HS})
        .set_stride({parts * s.T * s.C, HS, parts * s.C, 1});
  }
  static void place(const std::shared_ptr<fe::graph::Tensor_attributes>& tensor, const CudnnAttentionShape& s, int64_t parts, Tensor id) {
    const int64_t HS = s.C / s.NH;
    tensor->set_output(true).set_uid(id).set_dim({s.B, s.NH, s.T, HS}).set_stride({parts * s.T * s.C, HS, parts * s.C, 1});
  }
  static float scale(const CudnnAttentionShape& s) { return 1.0f / std::sqrt(static_cast<float>(s.C / s.NH)); }

  Plan finish(std::shared_ptr<fe::graph::Graph> graph, const std::string& what) const {
    check(graph->validate(), what);
    check(graph->build_operation_graph(handle_), what);
    check(graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), what);
    check(graph->check_support(handle_), what);
    check(graph->build_plans(handle_, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), what);
    Plan plan;
    plan.problem = what;
    check(graph->get_plan_name(plan.first.name), what);
    check(graph->get_workspace_size(plan.first.workspace_bytes), what);
    std::string name;
    while (plan.first.index < graph->get_execution_plan_count() && graph->get_plan_name_at_index(plan.first.index, name).is_good() &&
           name != plan.first.name)
      ++plan.first.index;
    plan.graph = std::move(graph);
    return plan;
  }

  Plan build_forward(const CudnnAttentionShape& s) const {
    auto graph = empty_graph();
    const auto q = graph->tensor(heads(s, 3, kQ, "q"));
    const auto k = graph->tensor(heads(s, 3, kK, "k"));
    const auto v = graph->tensor(heads(s, 3, kV, "v"));
    auto options = fe::graph::SDPA_attributes().set_name("attention");
    options.set_generate_stats(true).set_causal_mask(true).set_attn_scale(scale(s));
    const auto [out, stats] = graph->sdpa(q, k, v, options);
    place(out, s, 1, kOut);
    stats->set_output(true)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_uid(kStats)
        .set_dim({s.B, s.NH, s.T, 1})
        .set_stride({s.NH * s.T, s.T, 1, 1});
    return finish(std::move(graph), "forward of " + describe(s));
  }

  Plan build_backward(const CudnnAttentionShape& s, bool deterministic) const {
    auto graph = empty_graph();
    const auto q = graph->tensor(heads(s, 3, kQ, "q"));
    const auto k = graph->tensor(heads(s, 3, kK, "k"));
    const auto v = graph->tensor(heads(s, 3, kV, "v"));
    const auto out = graph->tensor(heads(s, 1, kOut, "out"));
    const auto dout = graph->tensor(heads(s, 1, kDout, "dout"));
    const auto stats = graph->tensor(fe::graph::Tensor_attributes()
                                         .set_name("stats")
                                         .set_uid(kStats)
                                         .set_dim({s.B, s.NH, s.T, 1})
                                         .set_stride({s.NH * s.T, s.T, 1, 1})
                                         .set_data_type(fe::DataType_t::FLOAT));
    auto options = fe::graph::SDPA_backward_attributes().set_name("attention_backward");
    options.set_causal_mask(true).set_attn_scale(scale(s)).set_deterministic_algorithm(deterministic);
    const auto [dq, dk, dv] = graph->sdpa_backward(q, k, v, out, dout, stats, options);
    place(dq, s, 3, kDq);
    place(dk, s, 3, kDk);
    place(dv, s, 3, kDv);
    return finish(std::move(graph), (deterministic ? "deterministic backward of " : "backward of ") + describe(s));
  }

  std::mutex mutex_;
  cudnnHandle_t handle_ = nullptr;  // lives as long as the process, like the library
  std::map<Key, Plan> plans_;
  AttentionPlanCache cache_{attention_plan_cache_file(gpt2::cuda::device_info().name, version_text(library().version))};
};

void* writable(const __nv_bfloat16* p) { return const_cast<__nv_bfloat16*>(p); }

}  // namespace

std::optional<std::string> why_no_cudnn() { return library().missing; }

std::string cudnn_version() { return library().missing ? std::string() : version_text(library().version); }

std::optional<std::string> why_no_cudnn_plan(const CudnnAttentionShape& s, bool deterministic) {
  try {
    require_library();
    (void)Attention::instance().forward(s);
    (void)Attention::instance().backward(s, deterministic);
  } catch (const stepscope::MachineError& e) {
    return e.what();
  }
  return std::nullopt;
}

int64_t cudnn_forward_workspace_bytes(const CudnnAttentionShape& s, CudnnPlan plan) {
  require_library();
  Attention& attention = Attention::instance();
  return attention.workspace_bytes(attention.forward(s), plan);
}

int64_t cudnn_backward_workspace_bytes(const CudnnAttentionShape& s, bool deterministic, CudnnPlan plan) {
  require_library();
  Attention& attention = Attention::instance();
  return attention.workspace_bytes(attention.backward(s, deterministic), plan);
}

void cudnn_attention_forward(__nv_bfloat16* out, float* lse, const __nv_bfloat16* qkv, const CudnnAttentionShape& s, CudnnPlan plan,
                             void* workspace, cudaStream_t stream) {
  require_library();
  Attention& attention = Attention::instance();
  attention.run(attention.forward(s), plan,
                {{kQ, writable(qkv)}, {kK, writable(qkv + s.C)}, {kV, writable(qkv + 2 * s.C)}, {kOut, out}, {kStats, lse}}, workspace,
                stream);
}

void cudnn_attention_backward(__nv_bfloat16* dqkv, const __nv_bfloat16* dout, const __nv_bfloat16* qkv, const __nv_bfloat16* out,
                              const float* lse, const CudnnAttentionShape& s, bool deterministic, CudnnPlan plan, void* workspace,
                              cudaStream_t stream) {
  require_library();
  Attention& attention = Attention::instance();
  attention.run(attention.backward(s, deterministic), plan,
                {{kQ, writable(qkv)},
                 {kK, writable(qkv + s.C)},
                 {kV, writable(qkv + 2 * s.C)},
                 {kOut, writable(out)},
                 {kStats, const_cast<float*>(lse)},
                 {kDout, writable(dout)},
                 {kDq, dqkv},
                 {kDk, dqkv + s.C},
                 {kDv, dqkv + 2 * s.C}},
                workspace, stream);
}

}  // namespace mixed
