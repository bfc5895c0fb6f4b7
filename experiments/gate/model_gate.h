// Whole-model checks of any trainer against the oracle, through gpt2/trainer.h alone: logits, loss, every
// gradient tensor, the optimizer, accumulation, whole steps at odd shapes and late in a run, the training loop,
// repeatability, and what must hold without an oracle (causality, padding, many rows, red zones). A trainer is built anew for each case; all
// its state is written first, so no check depends on the trainer's own initialization.
#pragma once
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "experiments/gate/expected.h"
#include "experiments/gate/loop_gate.h"
#include "experiments/gate/report.h"
#include "experiments/gate/step_audit.h"
#include "experiments/gate/watchdog.h"
#include "experiments/gate/workload.h"
#include "gpt2/trainer.h"

namespace gate {

// Whether a trainer refused a variant that was asked for by name, and not to be built for another reason: how gpt2/variant_rows.h begins.
inline bool refuses_a_variant(const std::exception& e) { return std::string_view(e.what()).starts_with("--variant "); }

using TrainerFactory = std::function<std::unique_ptr<gpt2::Trainer>(const gpt2::TrainerOptions&)>;

struct ModelGateOptions {
  std::string trainer = "fp32";
  std::string matmul = "fp32";
  std::map<std::string, std::string> variants;
  std::string recompute = "none";  // of the mixed trainer, as in gpt2::TrainerOptions
  std::string weight_rounding = "nearest";
  bool deterministic = true;  // repeatability is checked only of trainers that promise it
  bool heads_of_64 = false;   // the gate's own models have heads of 64 channels where theirs allow it: some defaults run with no others
  uint64_t seed = 0;
  std::string model_name = "gate model";
  gpt2::ModelConfig config = gate_model();
  int64_t batch_size = 4;
  int64_t seq_len = 64;
  int64_t trajectory_steps = 20;
  bool with_small_cases = true;  // the odd sizes and stress cases, which bring their own model
  bool with_steps = true;        // whole steps at more shapes, and late ones; they bring their own models too
  bool with_loop = true;         // schedule, loader, checkpoint and resume
  bool with_timed_steps = true;
  // GPT-2's smallest model as it trains against the oracle, one step of so many sequences (0.8 TFLOP in double for each); 0: not.
  int64_t real_size_batch = 0;
  gpt2::ModelConfig real_size_model = gpt2::model_from_name("d12");
  int64_t real_size_length = 1024;
  bool many_rows = false;  // of a trainer on a device with some 55 GB of free memory
  bool wide = false;       // one layer of wide_model against the oracle: 60 GFLOP in double
  gpt2::ModelConfig wide_model = wide_layer();
  std::set<std::string> without;                     // names of model_checks() that are not run
  TrainFunction train = gpt2::train;                 // tests hand in broken loops
  const DeviceHooks* device = nullptr;               // of a trainer on a device; must outlive the check
  ExpectedCache* small_answers = nullptr;            // the oracle's, of the small models, for checks of other variants; may be null
  ExpectedCache* big_answers = nullptr;              // of the real size and of wide_model (RealSizeAhead); may be null
  std::filesystem::path answers;                     // folder of the oracle's answers, of all models (kept_answers.h); empty: none are kept
  std::function<void(const std::string&)> progress;  // called with what begins; may be empty
  OnHang on_hang;                                    // of a trainer on a device that never ends a call
};

// Every check of check_model(): its name, as results and tests/bugs have it (up to a suffix, "adam m t=1 clip 0.2"),
// and one sentence. The list is what is run: a name in ModelGateOptions::without is not.
struct ModelCheck {
  std::string name, what;
};
const std::vector<ModelCheck>& model_checks();

// `without` may hold names of model_checks() only: throws stepscope::InputError otherwise.
GateReport check_model(const TrainerFactory& make_trainer, const ModelGateOptions& options);

// Asks the oracle for the answers at the real size and of the wide layer in a thread of its own, while the caller checks ops: they keep the
// device busy, the oracle the cores. Where the trainer asks something else after all (weights that it rounded at random) this was in vain and changes nothing.
class RealSizeAhead {
 public:
  // `options` as check_model() gets them, with big_answers.
  explicit RealSizeAhead(const ModelGateOptions& options);
  ~RealSizeAhead();  // waits for the answer
  RealSizeAhead(const RealSizeAhead&) = delete;
  RealSizeAhead& operator=(const RealSizeAhead&) = delete;

 private:
  std::thread thread_;
};

// The checks whose errors depend on the seed, of the small models only, one report per seed; trainers and the
// oracle's answers are used again. Of options.seed nothing is read. One draw of roundings instead of two, fewer
// micro-batches and a trajectory of 8 steps: budgets are a little less sure than the gate's own.
std::vector<GateReport> check_seeds(const TrainerFactory& make_trainer, const ModelGateOptions& options, std::span<const uint64_t> seeds);

}  // namespace gate
