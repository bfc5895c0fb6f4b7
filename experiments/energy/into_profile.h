// Joules of an energy document as columns of a profile document of the same run.
#pragma once
#include "experiments/energy/document.h"
#include "profiler/document/profile.h"

namespace energy {

// Fills the energy fields of every row of profile.ops that the document has. Throws stepscope::InputError, with every setting that differs,
// when the two are not of the same device and run settings, and when the document has ops by launch.
void add_to_profile(const Document& document, profiler::ProfileDocument& profile);

}  // namespace energy
