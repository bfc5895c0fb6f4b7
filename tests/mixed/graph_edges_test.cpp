// Which kernels may be placed before what they read is written: only those that wait, as their source says.
#include "mixed/graph_edges.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace mixed {
namespace {

TEST(GraphEdges, OnlyOwnKernelsOfTheListAreSaidToWait) {
  EXPECT_TRUE(waits_by_itself("_ZN4gpt23ops57_GLOBAL__N__1234_17_grad_norm_cu_abcd14squares_kernelILi8EEEvPdPKfl"));
  EXPECT_FALSE(waits_by_itself("_ZN7library14squares_kernelEv")) << "another namespace";
  EXPECT_FALSE(waits_by_itself("_ZN4gpt23ops20more_squares_kernelEv")) << "a longer name";
  EXPECT_FALSE(waits_by_itself("_ZN4gpt23ops23embedding_forward_kernelEv"));
  EXPECT_FALSE(waits_by_itself(""));
}

// A graph in which none is known as own has names that tell nothing; one of the update of several ranks has own kernels that do not wait.
TEST(GraphEdges, OwnKernelsAreThoseOfTheOpsWhetherTheyWaitOrNot) {
  EXPECT_TRUE(is_own_kernel("_ZN4gpt23ops23embedding_forward_kernelEv"));
  EXPECT_TRUE(is_own_kernel("_ZN4gpt23ops14squares_kernelEv"));
  EXPECT_TRUE(is_own_kernel("_ZN5mixed12_GLOBAL__N_119softmax_bias_kernelEPf"));
  EXPECT_FALSE(is_own_kernel("_ZN7library14squares_kernelERN5mixed4HeadE"));
  EXPECT_FALSE(is_own_kernel("_ZN7library14squares_kernelEv"));
  EXPECT_FALSE(is_own_kernel(""));
}

// A kernel of the list without the wait would read what is not written yet; nothing but chance would show it.
TEST(GraphEdges, ExactlyTheKernelsOfTheListBeginByWaiting) {
  const std::regex kernel(R"(__global__[^;{]*?\b(\w+_kernel)\s*\([^{]*\{\s*((gpt2::)?cuda::wait_for_kernels_before\(\);)?)");
  std::set<std::string> seen;
  for (const auto& [folder, space] : {std::pair{"gpt2/ops", "_ZN4gpt23ops"}, std::pair{"mixed/kernels", "_ZN5mixed"}})
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".cu") continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      for (std::sregex_iterator it(text.begin(), text.end(), kernel), end; it != end; ++it) {
        const std::string name = (*it)[1];
        const std::string mangled = space + std::to_string(name.size()) + name + "Ev";
        EXPECT_EQ((*it)[2].matched, waits_by_itself(mangled)) << name << " in " << entry.path();
        if ((*it)[2].matched) {
          EXPECT_TRUE(seen.insert(name).second) << name << " is in both folders";
        }
      }
    }
  EXPECT_EQ(seen.size(), 14u);
}

}  // namespace
}  // namespace mixed
