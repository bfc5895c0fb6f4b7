// The CPU reference's collector: hears the trainer's own ranges and writes the same recording that the CUPTI collector writes, one
// `cpu_op` per leaf range. It follows the same collect plan, so a CPU profile has the same phases.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/announced_communicator.h"
#include "gpt2/op_range.h"
#include "profiler/records/collect_plan.h"
#include "profiler/records/recording_file.h"

namespace cli {

class RangeRecorder : public gpt2::RangeListener, public CollectiveListener {
 public:
  // `plan_file` holds a profiler::CollectPlan as JSON. A rank of several writes its own file
  // (profiler::file_of_rank). Throws std::runtime_error when it cannot be read.
  RangeRecorder(const std::string& plan_file, const std::string& program);

  void begin_step(int64_t step) override;
  void end_step(int64_t step) override;
  void begin_op(gpt2::Pass pass, int layer, gpt2::Op op) override;
  void end_op(gpt2::Pass pass, int layer, gpt2::Op op) override;
  void begin_collective(const std::string& range) override;  // of the op that is open
  void end_collective() override {}

 private:
  RangeRecorder(const profiler::CollectPlan& plan, const std::string& program);
  RangeRecorder(const profiler::CollectPlan& plan, const std::optional<profiler::RankRecord>& rank, const std::string& program);
  profiler::Phase phase_of_step(int64_t seen) const;
  void finish();

  profiler::CollectPlan plan_;
  profiler::RecordingWriter writer_;
  int64_t seen_ = 0;  // step ranges begun so far
  int64_t last_ = 0;  // step ranges in the plan
  bool recording_ = false;
  bool finished_ = false;
  profiler::StepRecord step_;
  int64_t op_begin_ns_ = 0;
  std::string collective_;                       // the range of the one inside the op that is open; empty: none
  bool one_of_several_;                          // ranks
  std::vector<profiler::LaunchRecord> current_;  // of the step that is open
  std::vector<profiler::StepRecord> traced_;
  std::map<int64_t, std::vector<profiler::LaunchRecord>> operations_;  // by traced step
};

}  // namespace cli
