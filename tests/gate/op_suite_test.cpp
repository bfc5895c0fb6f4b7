// The lists of op cases: whether every variant of a trainer has one. Cases are made, not launched.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "experiments/gate/op_case.h"

namespace gate {
namespace {

using Covered = std::map<std::string, std::set<std::string>>;  // slot -> variants

std::vector<std::string> variants_of(const OpSuite& suite, const OpCase& c) {
  if (!c.variants.empty()) return c.variants;
  for (const gpt2::VariantInfo& info : suite.variants)
    if (info.slot == c.op) return info.names;
  return {};
}

Covered covered_by(const OpSuite& suite) {
  Covered covered;
  suite.for_each_case(1, [&](const OpCase& c) {
    for (const std::string& variant : variants_of(suite, c))
      covered[c.slot.empty() ? c.op : c.slot].insert(variant);
    for (const auto& [slot, variant] : c.also) covered[slot].insert(variant);
  });
  return covered;
}

void expect_every_variant(const OpSuite& suite, const std::set<std::string>& whole_step_slots) {
  Covered covered = covered_by(suite);
  for (const gpt2::VariantInfo& info : suite.variants)
    for (const std::string& name : info.names)
      if (!whole_step_slots.contains(info.slot)) {
        EXPECT_TRUE(covered[info.slot].contains(name)) << info.slot << "=" << name << " has no op case";
      }
}

TEST(OpSuite, EveryVariantOfTheMixedTrainerHasACase) {
  // How a step is launched and which of the library's algorithms runs are no ops; the whole-model checks run
  // both.
  expect_every_variant(mixed_ops(), {"step_launch", "matmul_algorithm"});
}

TEST(OpSuite, EveryVariantOfTheFp32TrainerHasACase) { expect_every_variant(fp32_ops(), {"zero_grad"}); }

// A name that no slot has would be launched by no variant table, and its refusal taken for a shape that it
// does not do.
TEST(OpSuite, CasesNameOnlyVariantsThatExist) {
  for (const OpSuite& suite : {fp32_ops(), mixed_ops()}) {
    std::map<std::string, std::set<std::string>> known;
    for (const gpt2::VariantInfo& info : suite.variants)
      known[info.slot] = {info.names.begin(), info.names.end()};
    for (const auto& [slot, variants] : covered_by(suite))
      for (const std::string& variant : variants)
        EXPECT_TRUE(known[slot].contains(variant)) << slot << "=" << variant;
  }
}

// What the oracle wants must itself pass, and have the size that the kernel writes.
TEST(OpSuite, EveryResultHasAnAnswerOfItsSizeAndFiniteValues) {
  for (const OpSuite& suite : {fp32_ops(), mixed_ops()})
    suite.for_each_case(2, [&](const OpCase& c) {
      for (const OpTensor& t : c.tensors) {
        SCOPED_TRACE(suite.trainer + " " + c.op + " " + c.shape + " " + t.name);
        EXPECT_EQ(static_cast<int64_t>(t.bytes.size()), t.role == Role::output ? 0 : t.byte_count());
        EXPECT_EQ(static_cast<int64_t>(t.want.size()), t.role == Role::input ? 0 : t.count());
        for (double x : t.want) ASSERT_TRUE(std::isfinite(x));
      }
    });
}

// A kernel that computes exactly and only rounds what it stores is right; zeros, a shuffle and 1% of noise
// are wrong.
TEST(OpSuite, ExactResultsStoredInTheirTypePassAndFakesDoNot) {
  for (const OpSuite& suite : {fp32_ops(), mixed_ops()})
    suite.for_each_case(3, [&](const OpCase& c) {
      const double floor = op_floor(suite.rates.front(), c.matmul) * c.floor_factor;
      for (const OpTensor& t : c.tensors) {
        if (t.role == Role::input) continue;
        SCOPED_TRACE(suite.trainer + " " + c.op + " " + c.shape + " " + t.name);
        std::vector<double> got = t.want;
        if (t.element == Element::f32)
          for (double& x : got) x = static_cast<double>(static_cast<float>(x));
        if (t.element == Element::bf16)
          for (double& x : got) x = static_cast<double>(to_bf16(static_cast<float>(x)));
        const Tolerance limit = t.rounding ? rounding_limit(t.rounding) : op_limit(floor, nullptr);
        const CheckResult r =
            from_metrics("", "", compare<double, double>(got, t.want, t.rows, t.columns), limit);
        EXPECT_TRUE(r.passed) << r.unit << " " << r.error << " > " << r.budget;
        if (t.rounding.count > 0 && t.rounding.inside == 0) {
          EXPECT_LE(worst_element(got, t.want), element_limit(t.rounding));
        }
        EXPECT_TRUE(accepted_fakes(t.want, t.rows, t.columns, limit).empty());
      }
    });
}

}  // namespace
}  // namespace gate
