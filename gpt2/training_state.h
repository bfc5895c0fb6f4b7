// The rest of a run beside its checkpoint: what makes a resumed run bitwise the one that never stopped. And
// the folder that holds both. Format "SSTATE" version 3, little-endian: the fields of kFieldNames
// (training_state.cpp) as 8-byte integers (the trainer's name as 16 characters, a schedule's as 8, settings as fp32 in
// twos), m, v as fp32 in the order of the tensor table, then the checksum of everything before it. Version 2, without
// what a step was updated by, and version 1, without the trainer too, are still read; any other version is an error.
//
// A checkpoint is complete or absent: FOLDER/step-00000010/{model.bin,state.bin} appears by one rename of a
// folder whose files are already on disk. model.bin is a plain llm.c checkpoint; state.bin carries its
// checksum, as llm.c's format has none.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "gpt2/checkpoint.h"
#include "gpt2/data/data_position.h"

namespace gpt2 {

// By what the steps were updated. A resumed run may take others, and is told which.
struct UpdateSettings {
  std::string schedule;  // LearningRate::schedule, at most 8 characters
  float learning_rate = 0, final_fraction = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, clip = 0;
  int64_t warmup = 0;
  bool operator==(const UpdateSettings&) const = default;
};

struct TrainingState {
  int64_t step = 0;            // optimizer steps done: t of AdamW; also the position in the learning-rate schedule
  int64_t schedule_total = 0;  // steps of the schedule it was saved under
  uint64_t seed = 0;
  DataPosition data;
  uint64_t data_fingerprint = 0;                          // TokenSource::fingerprint()
  int64_t batch_size = 0, seq_len = 0, accumulation = 0;  // accumulation: micro-batches of a step, of all ranks together
  uint64_t model_checksum = 0;                            // of model.bin
  std::string trainer;                                    // Trainer::name(); "" in files of version 1, which do not say
  std::optional<UpdateSettings> update;                   // nullopt in files of versions 1 and 2
  std::vector<float> m, v;                                // AdamW moments, one per parameter
};
bool begins_as_training_state(std::span<const std::byte> file);
TrainingState parse_training_state(std::span<const std::byte> file, const std::string& source);
TrainingState load_training_state(const std::filesystem::path& path);
// Throws stepscope::InputError unless `model`, a model.bin, has the checksum that the state was saved with.
void require_model_of(const TrainingState& state, const MappedFile& model);
void save_training_state(const std::filesystem::path& path, const TrainingState& state);

class CheckpointStore {
 public:
  // Makes the folder when missing, removes what dead writers left. keep >= 1.
  CheckpointStore(std::filesystem::path folder, int64_t keep);

  // Writes step state.step (state.model_checksum is filled in here) and then removes the oldest beyond
  // `keep`, first of all those that did not load when this store looked for the newest; the one just written
  // always stays, even when an abandoned run left higher numbers. A folder of such a name that holds anything else, or a checkpoint of another
  // step, was not written here: it is neither counted nor removed. Where it has the name of the step that is saved it is renamed; returns its
  // new name, or "".
  std::filesystem::path save(const ModelConfig& config, std::span<const float> parameters, TrainingState state);

  struct Loaded {
    Checkpoint model;
    TrainingState state;
    std::filesystem::path folder;
  };
  // Walks from the newest to the oldest; the reason for each one passed over is appended to `damaged`.
  std::optional<Loaded> newest_that_loads(std::vector<std::string>* damaged = nullptr) const;
  Loaded load(int64_t step) const;

  std::vector<int64_t> steps() const;  // complete ones, ascending
  std::filesystem::path path_of(int64_t step) const;

 private:
  void remove_leftovers() const;
  void retire(const std::filesystem::path& checkpoint) const;
  std::filesystem::path make_room(int64_t step) const;
  bool is_foreign(int64_t step) const;
  std::filesystem::path folder_;
  int64_t keep_;
  mutable std::set<int64_t> damaged_;  // steps that newest_that_loads() passed over
  mutable std::set<int64_t> renamed_;  // those of them whose state is of another step: read once, not at every save
};

// The steps of the checkpoints in a folder, ascending; likewise without touching it.
std::vector<int64_t> saved_steps(const std::filesystem::path& folder);
std::filesystem::path step_folder(const std::filesystem::path& folder, int64_t step);
// The checkpoint of that step in `folder`, without making, cleaning or locking anything there: for ranks beside the one that writes.
CheckpointStore::Loaded load_checkpoint_of_step(const std::filesystem::path& folder, int64_t step);

}  // namespace gpt2
