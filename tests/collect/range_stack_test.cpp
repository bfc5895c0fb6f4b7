#include "profiler/collect/range_stack.h"

#include <gtest/gtest.h>

#include "profiler/records/step_name.h"

namespace profiler::collect {
namespace {

TEST(RangeStack, PathJoinsTheNamesOfAllDomainsOutermostFirst) {
  RangeStack s;
  EXPECT_EQ(s.push(1, "step"), 0);
  EXPECT_EQ(s.push(2, "forward/3/qkv"), 0);
  EXPECT_EQ(s.push(2, "inner"), 1);
  EXPECT_EQ(s.path(), "step/forward/3/qkv/inner");
  EXPECT_EQ(s.pop(2)->level, 1);
  EXPECT_EQ(s.path(), "step/forward/3/qkv");
}

TEST(RangeStack, PopRemovesTheInnermostRangeOfItsOwnDomainOnly) {
  RangeStack s;
  s.push(1, "a");
  s.push(2, "bb");
  s.push(3, "ccc");
  EXPECT_TRUE(s.pop(1));
  EXPECT_EQ(s.path(), "bb/ccc");
  EXPECT_TRUE(s.pop(2));
  EXPECT_EQ(s.path(), "ccc");
  s.push(1, "d");
  EXPECT_TRUE(s.pop(3));
  EXPECT_EQ(s.path(), "d");
  EXPECT_TRUE(s.pop(1));
  EXPECT_EQ(s.path(), "");
}

TEST(RangeStack, PopOfADomainWithoutOpenRangeIsNoAnswer) {
  RangeStack s;
  s.push(1, "a");
  EXPECT_FALSE(s.pop(2));
  EXPECT_TRUE(s.pop(1));
  EXPECT_FALSE(s.pop(1));
  EXPECT_EQ(s.path(), "");
}

TEST(RangeStack, SerialsTellEqualRangesApart) {
  RangeStack s;
  s.push(1, "step");
  const uint64_t first = s.top_serial();
  s.push(1, "step");
  EXPECT_NE(s.pop(1)->serial, first);
  EXPECT_EQ(s.pop(1)->serial, first);
}

TEST(ComponentBelow, IsTheFirstNameUnderTheStep) {
  EXPECT_EQ(component_below("run/step", "run/step/forward/3/qkv"), "forward");
  EXPECT_EQ(component_below("step", "step/optimizer"), "optimizer");
  EXPECT_FALSE(component_below("step", "step"));
  EXPECT_FALSE(component_below("step", "stepping/forward"));
  EXPECT_FALSE(component_below("step", "other/step/forward"));
}

TEST(StepName, AcceptsNumberedStepsAndPyTorchSpelling) {
  EXPECT_TRUE(is_step_name("step", "step"));
  EXPECT_TRUE(is_step_name("step 17", "step"));
  EXPECT_TRUE(is_step_name("ProfilerStep#4", "step"));
  EXPECT_FALSE(is_step_name("stepper", "step"));
  EXPECT_FALSE(is_step_name("ste", "step"));
  EXPECT_FALSE(is_step_name("step/forward", "step"));
}

}  // namespace
}  // namespace profiler::collect
