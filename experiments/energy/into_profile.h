// Joules of an energy document as columns of a profile document of the same run.
#pragma once
#include <string>

#include "experiments/energy/document.h"
#include "profiler/document/profile.h"

namespace energy {

// Throws stepscope::InputError, with every setting that differs, when the profile is not of this device, driver and settings.
void require_same_run(const RunSettings& run, const profiler::ProfileDocument& profile);

// "joules of abc, times of def": the two are of other code, or of uncommitted changes that may differ; "": of the same, or nobody knows. No
// reason to refuse, since most commits change no kernel, but one to say so.
std::string other_code(const RunSettings& run, const profiler::ProfileDocument& profile);

// "joules of GPU-1, times of GPU-2"; "": of one GPU, or one of them does not say. Two GPUs of one name differ by some percent.
std::string other_gpu(const RunSettings& run, const profiler::ProfileDocument& profile);

// "a step of 9.00 ms with the joules, of 26.9 ms with the times", where the longer is more than 1.25 times the other; "": they are alike, or the
// profile has no step time. Warm and cool steps of one program differ by a tenth.
std::string other_times(const Document& document, const profiler::ProfileDocument& profile);

// Fills the energy fields of every row of profile.ops that the document has; `missing` gets a row of each of these three. Throws as
// require_same_run, and stepscope::InputError when the document has ops by launch.
void add_to_profile(const Document& document, profiler::ProfileDocument& profile);

// The profile with the joules as the text of its file, `file`. Throws as add_to_profile, and stepscope::InputError where no reader of
// profiles would take that text: then the file must stay as it is.
std::string profile_with_joules(const Document& document, profiler::ProfileDocument profile, const std::string& file);

}  // namespace energy
