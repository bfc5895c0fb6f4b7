#include "experiments/gate/op_candidates.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/gate/op_compare.h"

namespace gate {
namespace {

constexpr double kMostFlops = 1e10;
// Of weight gradients: attproj at 16,421 rows is a long sum, of which the library splits all eight offers.
constexpr double kMostFlopsOfSums = 2e10;
// Behind the library's offers are kernels that an engine names itself, some ninety of a product, which differ by tile, order of tiles and
// cluster: three to nine of a tile follow each other, and tiles differ from product to product.
constexpr int kOneOf = 7;

// Of two results the one that is further beyond its budget, or nearer to it. NaN is the furthest.
bool is_worse(const CheckResult& a, const CheckResult& b) { return !std::isnan(b.error) && !(a.error / a.budget <= b.error / b.budget); }

}  // namespace

bool asks_candidates(const OpCase& c, const std::string& variant) {
  if (c.op == "linear_backward_weight") return variant == "bf16" && c.flops <= kMostFlopsOfSums;
  if (c.flops > kMostFlops) return false;
  if (c.op == "linear_forward") return true;
  return c.op == "linear_backward" && variant == c.baseline &&
         std::ranges::none_of(c.tensors, [](const OpTensor& t) { return t.role == Role::update; });
}

std::vector<CheckResult> check_candidates(Space space, const OpCase& c, double floor, const std::string& name, const std::string& detail,
                                          const std::function<Candidate(int number)>& launch) {
  std::map<size_t, CheckResult> worst;  // by tensor
  int all = 1, offered = 0;
  for (int number = 0; number < all; ++number) {
    if (number >= offered && (number - offered) % kOneOf != 0) continue;
    const Candidate candidate = launch(number);
    if (number == 0 && candidate.of == 0) return {};  // they had their turn in another case
    all = std::max(all, candidate.of);
    offered = std::max(offered, candidate.offered);
    if (!candidate.launched) continue;
    for (size_t i = 0; i < c.tensors.size(); ++i) {
      const OpTensor& t = c.tensors[i];
      if (t.role == Role::input) continue;
      const View &got = candidate.results[i], want = view(t.want);
      const std::string by = detail + ", candidate " + std::to_string(number);
      const CheckResult r =
          t.rounding.count > 0 && t.rounding.inside == 0
              ? make_result(name + " candidates", t.name,
                            {{"worst element", worst_element(space, got, want, t.count()), element_limit(t.rounding)}}, by)
              : from_metrics(name + " candidates", t.name, compare(space, got, want, t.rows, t.columns),
                             t.rounding ? rounding_limit(t.rounding) : op_limit(floor, nullptr), by);
      const auto [known, is_new] = worst.try_emplace(i, r);
      if (!is_new && is_worse(r, known->second)) known->second = r;
    }
  }
  std::vector<CheckResult> out;
  for (auto& [tensor, result] : worst) {
    result.detail += " of " + std::to_string(all);
    out.push_back(std::move(result));
  }
  return out;
}

}  // namespace gate
