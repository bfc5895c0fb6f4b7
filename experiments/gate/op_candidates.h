// A trainer that searches takes whichever of the library's algorithms is the fastest, on this machine and today. So products are held against
// their answer by every one that the library offers to its engine and by every seventh of those that the engine names itself, and not by the one
// that another engine gets as the library's first choice.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "experiments/gate/op_case.h"

namespace gate {

// Whether candidates are asked of this variant of the case: of plain products of up to 10 GFLOP, of weight gradients up to 20. Of
// linear_backward the baseline alone, without what adds to gradients, since other variants have the same products.
bool asks_candidates(const OpCase& c, const std::string& variant);

// What one candidate left, tensor by tensor as in OpCase::tensors.
struct Candidate {
  int of = 0;             // so many a product of the case has; 0: no product was met that had not been asked before
  int offered = 0;        // so many of them the library offers: the first ones
  bool launched = false;  // false: the library refuses it at the launch, and a search leaves it out
  std::vector<View> results;
};

// Asks for all of the library's offers and for every seventh candidate behind them. "OP/VARIANT candidates", one result for each tensor: of
// one that is rounded on its way out its worst element with the worst of them, of others their norm, row and column.
std::vector<CheckResult> check_candidates(Space space, const OpCase& c, double floor, const std::string& name, const std::string& detail,
                                          const std::function<Candidate(int number)>& launch);

}  // namespace gate
