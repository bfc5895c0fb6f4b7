// Whether the numbers of a document can be those of a measurement (measure.cpp) and agree with each other: the table, the profile and what
// to do next are computed from them. Each throws stepscope::InputError naming `file`, the field, what was found and what is expected.
#pragma once
#include <string>

#include "experiments/energy/document.h"

namespace energy {

// What something is divided by, or what nothing was measured without.
void check_more_than_zero(const Document& document, const std::string& file);
// Sums against their rows, what is computed from other fields against these, and how far below zero an op may lie.
void check_agreement(const Document& document, const std::string& file);

}  // namespace energy
