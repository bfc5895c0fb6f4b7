// Recordings of all ranks of one run -> one profile document.
//
// The document is that of the rank whose step on the device is the median one, with sections in which all ranks stand side by side. Ranks
// are joined by the step's number and by the position of a collective in it, never by time.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "profiler/document/build_profile.h"
#include "profiler/ranks/link_model.h"

namespace profiler {

struct RankRecording {
  Recording recording;
  std::string source;  // the file, for messages
};

struct JoinOptions {
  bool partial = false;  // ranks may be missing; then nothing is said about skew
  std::optional<LinkCeilings> links;
};

// Throws stepscope::InputError that names the files and the difference: a recording without a rank, of another job, another build or another
// number of ranks, a rank twice or (unless `partial`) missing, last traced steps of different numbers. What one rank lost is a row of
// `missing`.
ProfileDocument join_ranks(const std::vector<RankRecording>& recordings, const std::optional<RunInfo>& run, const Ceilings& ceilings,
                           const ProfileOptions& options, const JoinOptions& join);

}  // namespace profiler
