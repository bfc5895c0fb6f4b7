#include "profiler/collect/events.h"

#include <gtest/gtest.h>

#include "profiler/collect/missing_names.h"
#include "profiler/records/missing.h"

namespace profiler::collect {
namespace {

TEST(LaunchKindOfApi, KnowsEveryDoorToTheGpu) {
  for (const char* name :
       {"cudaLaunchKernel_v7000", "cudaLaunchKernel_ptsz_v7000", "__cudaLaunchKernel_v13000", "cudaLaunchKernelExC_v11060",
        "cudaLaunchCooperativeKernel_v9000", "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"})
    EXPECT_EQ(launch_kind_of_api(name), LaunchKind::kernel) << name;
  for (const char* name : {"cudaGraphLaunch_v10000", "cuGraphLaunch_ptsz"}) EXPECT_EQ(launch_kind_of_api(name), LaunchKind::graph) << name;
  for (const char* name : {"cudaMemcpyAsync_v3020", "cuMemcpyHtoDAsync_v2", "cu64MemcpyDtoD"})
    EXPECT_EQ(launch_kind_of_api(name), LaunchKind::copy) << name;
  for (const char* name : {"cudaMemset_v3020", "cuMemsetD8Async", "cuMemsetD32_v2"})
    EXPECT_EQ(launch_kind_of_api(name), LaunchKind::memset) << name;
}

TEST(LaunchKindOfApi, LeavesEverythingElseAlone) {
  for (const char* name : {"cudaLaunchHostFunc_v10000", "cuLaunchHostFunc", "cudaGraphAddMemcpyNode_v10000", "cudaMemSetMemPool_v13000",
                           "cudaMalloc_v3020", "cudaGraphInstantiate_v12000", "cuStreamBeginCapture_v2", "nonsense", ""})
    EXPECT_FALSE(launch_kind_of_api(name)) << name;
}

TEST(CaptureChange, OpensAndCloses) {
  EXPECT_EQ(capture_change_of_api("cuStreamBeginCapture_v2_ptsz"), 1);
  EXPECT_EQ(capture_change_of_api("cuStreamBeginCaptureToGraph"), 1);
  EXPECT_EQ(capture_change_of_api("cuStreamEndCapture"), -1);
  EXPECT_EQ(capture_change_of_api("cuStreamGetCaptureInfo_v2"), 0);
}

TEST(Demangle, LeavesPlainNamesAlone) {
  EXPECT_EQ(demangle("_Z4axpyPfPKfm"), "axpy(float*, float const*, unsigned long)");
  EXPECT_EQ(demangle("f"), "f");
  EXPECT_EQ(demangle("nvjet_tst_128x256"), "nvjet_tst_128x256");
  EXPECT_EQ(demangle(""), "");
}

TEST(CallNesting, ADriverCallInsideARuntimeCallIsTheSameLaunch) {
  CallNesting n;
  EXPECT_TRUE(n.enter(10, true).is_launch);
  const auto inner = n.enter(11, true);
  EXPECT_FALSE(inner.is_launch);
  EXPECT_EQ(inner.alias_of, 10u);
  EXPECT_FALSE(n.exit().outermost);
  const auto left = n.exit();
  EXPECT_TRUE(left.outermost);
  EXPECT_EQ(left.launch, 10u);
  EXPECT_FALSE(left.captured);
}

TEST(CallNesting, EqualIdsNeedNoAlias) {
  CallNesting n;
  n.enter(10, true);
  const auto inner = n.enter(10, true);
  EXPECT_FALSE(inner.is_launch);
  EXPECT_FALSE(inner.alias_of);
}

TEST(CallNesting, TheInnerCallIsTheLaunchWhenTheOuterDoesNotKnowItsContext) {
  CallNesting n;
  EXPECT_FALSE(n.enter(10, false).is_launch);
  const auto inner = n.enter(11, true);
  EXPECT_TRUE(inner.is_launch);
  EXPECT_EQ(inner.earlier_alias, 10u);
  n.exit();
  EXPECT_EQ(n.exit().launch, 11u);
}

TEST(CallNesting, AnOuterCallIsForgottenWhenItEnds) {
  CallNesting n;
  n.enter(10, false);
  n.exit();
  EXPECT_FALSE(n.enter(11, true).earlier_alias) << "call 10 was over";
}

TEST(CallNesting, ACaptureIsForgottenWithItsCall) {
  CallNesting n;
  n.enter(1, true);
  n.node_created();
  EXPECT_TRUE(n.exit().captured);
  n.node_created();  // outside any call: a graph built by hand
  n.enter(2, true);
  EXPECT_FALSE(n.exit().captured);
}

TEST(CallNesting, AnExitWithoutEntryIsIgnored) {
  CallNesting n;
  EXPECT_FALSE(n.exit().outermost);
  EXPECT_TRUE(n.enter(1, true).is_launch);
  EXPECT_TRUE(n.exit().outermost);
}

TEST(MissingNames, AreAllInTheCatalogue) {
  for (const std::string_view name : missing::kAll) EXPECT_TRUE(find_missing(name)) << name;
}

}  // namespace
}  // namespace profiler::collect
