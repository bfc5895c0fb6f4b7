// Joules of an energy document as columns of a profile document of the same run.
#pragma once
#include <string>
#include <vector>

#include "experiments/energy/document.h"
#include "profiler/document/profile.h"
#include "profiler/records/records.h"

namespace energy {

// Throws stepscope::InputError, with every setting that differs, when the profile is not of this device, driver and settings, or is of
// several ranks.
void require_same_run(const RunSettings& run, const profiler::ProfileDocument& profile);

// What is no reason to refuse, but one to say so: rows of `missing`, each by its name. One without a detail has nothing to say of the two.
//   energy_of_other_code    "joules of abc, times of def": of other code, or of uncommitted changes that may differ; most commits change no kernel
//   energy_of_other_gpu     "joules of GPU-1, times of GPU-2": two GPUs of one name differ by some percent
//   energy_of_other_times   "a step of 9.00 ms with the joules, of 26.9 ms with the times": the longer is more than 1.25 times the other, where
//                           warm and cool steps of one program differ by a tenth
std::vector<profiler::MissingRecord> notices(const Document& document, const profiler::ProfileDocument& profile);

// Fills the energy fields of every row of profile.ops that the document has; `missing` gets the notices. Throws as
// require_same_run, and stepscope::InputError when the document has ops by launch.
void add_to_profile(const Document& document, profiler::ProfileDocument& profile);

// The profile with the joules as the text of its file, `file`. Throws as add_to_profile, and stepscope::InputError where no reader of
// profiles would take that text: then the file must stay as it is.
std::string profile_with_joules(const Document& document, profiler::ProfileDocument profile, const std::string& file);

}  // namespace energy
