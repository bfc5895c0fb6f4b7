// Do both arms run the same device code with the same launches? Then a measured difference is noise whatever
// a test says, and the run counts as an A/A trial. Only ever "yes" when it is certain: one program file, the
// same sequence of launches (kernel, grid, block, registers, shared memory, stream). Equal kernel names of
// two program files prove nothing, and neither do the ranges of the host that a profile of the CPU has in the place of launches: the
// same ranges hold whatever work their arguments make.
#pragma once
#include <string>

#include "profiler/document/profile.h"

namespace experiments {

struct SameCode {
  bool same = false;
  std::string why;  // the first difference, or what they have in common
};

SameCode same_code(const profiler::ProfileDocument& a, const profiler::ProfileDocument& b, const std::string& a_program_sha256,
                   const std::string& b_program_sha256);

}  // namespace experiments
