// From the profiles of two arms to what their difference is made of: waterfall, same launches, same code, the physical floor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/verdict/physical_floor.h"
#include "experiments/verdict/same_code.h"
#include "experiments/verdict/same_launches.h"
#include "tests/experiments/made_verdict.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

TEST(waterfall, sums_to_the_difference_of_the_steps) {
  const ordered_json w = to_json(example());
  double sum = w["other"]["delta_ns"].get<double>() + w["idle"]["delta_ns"].get<double>() + w["rest"]["delta_ns"].get<double>();
  for (const ordered_json& k : w["kernels"]) sum += k["delta_ns"].get<double>();
  EXPECT_NEAR(sum, 1047e3 - 1200e3, 1e-6);
  EXPECT_NEAR(w["delta_ns"].get<double>(), sum, 1e-6);
  EXPECT_DOUBLE_EQ(w["rest"]["delta_ns"].get<double>(), 7e3);
}

// Steps 4 to 9 of an arm, from 7 on checked ones; each launches a layernorm twice, a product once and copies 64 bytes.
std::vector<profiler::LaunchRecord> traced_steps() {
  std::vector<profiler::LaunchRecord> out;
  for (int64_t step = 4; step < 10; ++step)
    for (const char* name : {"layernorm", "gemm", "layernorm", "copy HtoD"}) {
      profiler::LaunchRecord l;
      l.step = step;
      l.name = name;
      if (std::string_view(name) == "copy HtoD") {
        l.activity = profiler::Activity::copy;
        l.bytes = 64;
      } else {
        l.grid = {12, 1, 1};
        l.block = {256, 1, 1};
      }
      out.push_back(l);
    }
  return out;
}

TEST(same_launches, says_so_whatever_the_order_within_a_step) {
  std::vector<profiler::LaunchRecord> l = traced_steps();
  std::swap(l[0], l[1]);
  const SameLaunches s = same_launches(l, 7);
  EXPECT_TRUE(s.same) << s.sentence;
  EXPECT_EQ(s.operations, 4);
  EXPECT_EQ(s.timed_steps, 3);
  EXPECT_EQ(s.checked_steps, 3);
}

TEST(same_launches, names_the_step_and_the_kernel_that_differ) {
  auto l = traced_steps();
  l.erase(l.begin() + 4);  // step 5: one layernorm less
  EXPECT_FALSE(same_launches(l, 7).same);
  EXPECT_THAT(same_launches(l, 7).sentence, HasSubstr("timed step 5"));
  EXPECT_THAT(same_launches(l, 7).sentence, HasSubstr("1 times instead of 2: kernel layernorm"));
  l = traced_steps();
  l[9].grid = {6, 1, 1};  // step 6: half the grid
  EXPECT_THAT(same_launches(l, 7).sentence, HasSubstr("0 times instead of 1: kernel gemm (12,1,1"));
  l = traced_steps();
  l[9].shared_dynamic_bytes = 1024;  // step 6
  EXPECT_THAT(same_launches(l, 7).sentence, HasSubstr("0 times instead of 1: kernel gemm"));
  l = traced_steps();
  l.push_back(l[0]);  // step 4: one layernorm more
  EXPECT_THAT(same_launches(l, 7).sentence, HasSubstr("3 times instead of 2: kernel layernorm"));
  l = traced_steps();
  l.push_back(l[1]);  // step 4: work of another step
  l.back().name = "adamw";
  EXPECT_THAT(same_launches(l, 7).sentence, HasSubstr("1 times instead of 0: kernel adamw"));
  l = traced_steps();
  l[11].bytes = 32;  // step 6
  EXPECT_THAT(same_launches(l, 7).sentence, HasSubstr("copy copy HtoD of 64 bytes"));
  l = traced_steps();
  l.pop_back();  // step 9 is a checked one, and checked steps must agree among themselves
  EXPECT_THAT(same_launches(l, 7).sentence, HasSubstr("checked step 9"));
}

TEST(same_launches, without_steps_on_both_sides_are_no_proof) {
  EXPECT_FALSE(same_launches({}, 7).same);
  EXPECT_FALSE(same_launches(traced_steps(), 0).same);
  EXPECT_FALSE(same_launches(traced_steps(), 10).same);
}

TEST(waterfall, names_what_is_gone_new_and_changed) {
  std::map<std::string, std::string> change;
  for (const profiler::WaterfallRow& k : example().kernels) change[k.kernel] = k.change;
  EXPECT_EQ(change,
            (std::map<std::string, std::string>{{"layernorm", "changed"}, {"gemm_old", "gone"}, {"bias", "gone"}, {"gemm_fused", "new"}}));
}

TEST(waterfall, nets_the_kernels_of_an_op_whose_names_changed) {
  const profiler::Waterfall w = example();
  ASSERT_EQ(w.ops[0].op, "mlp_up");
  EXPECT_DOUBLE_EQ(w.ops[0].b_ns - w.ops[0].a_ns, 850e3 - 980e3);
}

TEST(waterfall, folds_small_changes_but_never_what_came_or_went) {
  const ordered_json w = to_json(example(), 1e9);
  EXPECT_EQ(w["kernels"].size(), 3u);
  EXPECT_EQ(w["other"]["kernels"], 1);
  EXPECT_DOUBLE_EQ(w["other"]["delta_ns"].get<double>(), -10e3);
}

TEST(waterfall, shows_the_bytes_that_a_kernel_moves_where_they_were_counted) {
  auto with = kernel("k", "gelu", 1, 1e3), without = kernel("k", "gelu", 1, 2e3);
  with.dram_read_bytes = 30e6;
  with.dram_write_bytes = 10e6;
  const ordered_json row = to_json(*make_waterfall(profile({with}, 1e3, 0), profile({without}, 2e3, 0)))["kernels"][0];
  EXPECT_EQ(row["a_dram_bytes"], 40e6);
  EXPECT_FALSE(row.contains("b_dram_bytes"));
}

TEST(waterfall, counts_copies_and_memsets_as_launches) {
  auto copy = kernel("copy DtoD", "copy", 0, 1e3);
  copy.activity = "copy";
  copy.copies = 3;
  const profiler::Waterfall came = make_waterfall(profile({}, 0, 0), profile({copy}, 1e3, 0)).value();
  EXPECT_EQ(came.kernels.at(0).change, "new");
  EXPECT_EQ(came.kernels.at(0).b.launches, 3);
  const profiler::Waterfall went = make_waterfall(profile({copy}, 1e3, 0), profile({}, 0, 0)).value();
  EXPECT_EQ(went.kernels.at(0).change, "gone");
  EXPECT_EQ(went.kernels.at(0).a.launches, 3);
  EXPECT_EQ(make_waterfall(profile({copy}, 1e3, 0), profile({copy}, 1e3, 0))->kernels.at(0).change, "changed");
}

TEST(waterfall, needs_a_traced_step) { EXPECT_FALSE(make_waterfall(profiler::ProfileDocument{}, profile({}, 1, 0))); }

TEST(physical_floor, is_an_alarm_for_steps_faster_than_their_matrix_products_can_be) {
  profiler::ProfileDocument d;
  EXPECT_FALSE(below_physical_floor(1, d)) << "no ceiling, no alarm";
  d.timing.step_time_ns.median = 10e6;
  d.timing.model_flops_per_s = 1e14;
  d.timing.of_matmul_ceiling_pct = 40.0;  // so the products need 4 ms
  EXPECT_DOUBLE_EQ(*matmul_floor_ns(d), 4e6);
  EXPECT_FALSE(below_physical_floor(10e6, d));
  EXPECT_FALSE(below_physical_floor(3.7e6, d));
  EXPECT_THAT(below_physical_floor(3.5e6, d).value_or(""), HasSubstr("3.500 ms is impossible"));
}

profiler::ProfileDocument launches(int64_t grid) {
  profiler::ProfileDocument d;
  for (int i = 0; i < 3; ++i) {
    profiler::LaunchRow l;
    l.name = "kernel" + std::to_string(i);
    l.grid = {i == 1 ? grid : 7, 1, 1};
    d.launches.push_back(l);
  }
  return d;
}

TEST(same_code, is_one_program_file_and_equal_launches) {
  EXPECT_TRUE(same_code(launches(5), launches(5), "abc", "abc").same);
  EXPECT_THAT(same_code(launches(5), launches(5), "abc", "abd").why, HasSubstr("different program files"));
  EXPECT_THAT(same_code(launches(5), launches(6), "abc", "abc").why, HasSubstr("launch 1, kernel1"));
  profiler::ProfileDocument graph = launches(5);
  for (profiler::LaunchRow& l : graph.launches) l.graph_node = 3;
  EXPECT_FALSE(same_code(launches(5), graph, "abc", "abc").same);
  EXPECT_FALSE(same_code(launches(5), launches(5), "", "").same);
  EXPECT_FALSE(same_code({}, {}, "abc", "abc").same);
}

// Of a CPU a profile has ranges of the host. A step that does other work inside them has the same ranges.
TEST(same_code, is_not_known_where_launches_are_ranges_of_the_host) {
  profiler::ProfileDocument cpu = launches(5);
  for (profiler::LaunchRow& l : cpu.launches) l.activity = "cpu_op";
  EXPECT_FALSE(same_code(cpu, cpu, "abc", "abc").same);
  EXPECT_THAT(same_code(cpu, cpu, "abc", "abc").why, HasSubstr("ranges of the host, which do not say what runs in them"));
  profiler::ProfileDocument both = launches(5);
  both.launches[2].activity = "cpu_op";
  EXPECT_FALSE(same_code(both, both, "abc", "abc").same);
}

TEST(same_code, differs_when_any_part_of_any_launch_does) {
  using Row = profiler::LaunchRow;
  const std::vector<std::pair<const char*, void (*)(Row&)>> changes{
      {"name", [](Row& l) { l.name = "other"; }},
      {"grid", [](Row& l) { l.grid[2] = 5; }},
      {"block",
       [](Row& l) {
         l.block = {64, 1, 1};
       }},
      {"registers", [](Row& l) { l.registers = 99; }},
      {"shared memory", [](Row& l) { l.shared_bytes = 1024; }},
      {"stream", [](Row& l) { l.stream = 19; }},
      {"range", [](Row& l) { l.path = "step/other"; }},
      {"activity", [](Row& l) { l.activity = "memset"; }},
      {"bytes", [](Row& l) { l.bytes = 4096; }},
      {"graph", [](Row& l) { l.graph_node = 3; }},
  };
  for (const auto& [what, change] : changes)
    for (size_t i = 0; i < 3; ++i) {
      const profiler::ProfileDocument a = launches(5);
      profiler::ProfileDocument b = a;
      change(b.launches[i]);
      EXPECT_FALSE(same_code(a, b, "abc", "abc").same) << what << " of launch " << i;
      EXPECT_THAT(same_code(a, b, "abc", "abc").why, HasSubstr("launch " + std::to_string(i))) << what;
      EXPECT_TRUE(same_code(b, b, "abc", "abc").same) << what;
    }
  profiler::ProfileDocument fewer = launches(5);
  fewer.launches.pop_back();
  EXPECT_THAT(same_code(launches(5), fewer, "abc", "abc").why, HasSubstr("3 launches a step in A, 2 in B"));
}

}  // namespace
}  // namespace experiments
