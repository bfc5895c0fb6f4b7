// Which metric fills tensor_active_pct, and that every view says so. The kernels are those of the real
// reports in data/; where a report is to lack a metric, or to have it under another name, it is taken from a
// real one by renaming.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "profiler/diff/diff.h"
#include "profiler/document/build_profile.h"
#include "profiler/document/json.h"
#include "profiler/ingest/to_recording.h"
#include "profiler/report/facts.h"
#include "profiler/report/html.h"
#include "profiler/report/markdown.h"
#include "profiler/report/table.h"
#include "tests/ingest/fixture.h"

namespace {

using namespace profiler;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kElapsed[] = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
constexpr char kActive[] = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
constexpr char kHmmaActive[] = "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active";
constexpr char kInstructions[] = "sm__inst_executed_pipe_tensor.sum";

ProfileDocument tensor_document(const ForeignReport& r) { return build_profile(to_recording(r, {}), std::nullopt, {}, {}); }

void rename(ForeignReport& r, const char* from, const char* to) {
  const auto at = std::find(r.metrics.begin(), r.metrics.end(), from);
  ASSERT_NE(at, r.metrics.end()) << from;
  *at = to;
  // A metric brings its other roll-ups with it, among them a second that would do.
  for (std::string& name : r.metrics)
    if (name.starts_with("sm__pipe_tensor_cycles_active.sum")) name = "gone " + name;
}
void scale(ForeignReport& r, const char* metric, const std::function<double(const ForeignResult&)>& factor) {
  const auto index = metric_index(r, metric);
  ASSERT_TRUE(index) << metric;
  for (ForeignResult& k : r.results)
    for (auto& [i, v] : k.values)
      if (i == *index) v *= factor(k);
}
// Without any of its cycles.
void without_cycles(ForeignReport& r) {
  for (std::string& name : r.metrics)
    if (name.find("cycles_elapsed") != std::string::npos || name.starts_with("sm__cycles_active")) name = "gone " + name;
}
const MissingRow* missing(const ProfileDocument& d, const char* name) {
  const auto at = std::find_if(d.missing.begin(), d.missing.end(), [&](const MissingRow& m) { return m.name == name; });
  return at == d.missing.end() ? nullptr : &*at;
}

TEST(TensorUse, ThePlainMetricIsTakenAsItIs) {
  const ForeignReport r = ncu_report("mixed_nvtx.ncu-rep");
  const ProfileDocument d = tensor_document(r);
  EXPECT_EQ(d.collection.tensor_metric, kElapsed);
  for (size_t i = 0; i < r.results.size(); ++i)
    EXPECT_DOUBLE_EQ(*d.launches[i].tensor_active_pct, *value_of(r.results[i], metric_index(r, kElapsed)));
  EXPECT_GT(*d.totals.tensor_active_pct, 5);
  EXPECT_EQ(missing(d, "tensor_use_converted"), nullptr);
  EXPECT_EQ(missing(d, "tensor_use_other_metric"), nullptr);
}

// pct_of_peak_sustained_active = tensor cycles / active cycles: from the real elapsed ones and the report's
// own cycles.
TEST(TensorUse, AShareOfActiveCyclesIsBroughtToAllCycles) {
  const ForeignReport plain = ncu_report("mixed_nvtx.ncu-rep");
  ForeignReport r = plain;
  scale(r, kElapsed, [&](const ForeignResult& k) {
    return *value_of(k, metric_index(plain, "sm__cycles_elapsed.max")) / *value_of(k, metric_index(plain, "sm__cycles_active.avg"));
  });
  rename(r, kElapsed, kActive);
  const ProfileDocument d = tensor_document(r), truth = tensor_document(plain);
  EXPECT_EQ(d.collection.tensor_metric, std::string(kActive) + " x sm__cycles_active.avg / sm__cycles_elapsed.max");
  for (size_t i = 0; i < truth.launches.size(); ++i)
    EXPECT_NEAR(*d.launches[i].tensor_active_pct, *truth.launches[i].tensor_active_pct, 1e-9);
  for (size_t i = 0; i < truth.kernels.size(); ++i) EXPECT_EQ(d.kernels[i].bound, truth.kernels[i].bound);
  EXPECT_NEAR(*d.totals.tensor_active_pct, *truth.totals.tensor_active_pct, 1e-9);
  ASSERT_NE(missing(d, "tensor_use_converted"), nullptr);
  EXPECT_EQ(missing(d, "tensor_use_converted")->severity, "info");
}

TEST(TensorUse, WithoutCyclesAShareOfActiveCyclesIsShownUnderItsName) {
  ForeignReport r = ncu_report("mixed_nvtx.ncu-rep");
  rename(r, kElapsed, kActive);
  without_cycles(r);
  const ProfileDocument d = tensor_document(r);
  EXPECT_EQ(d.collection.tensor_metric, kActive);
  ASSERT_NE(missing(d, "tensor_use_other_metric"), nullptr);
  EXPECT_THAT(missing(d, "tensor_use_other_metric")->detail, AllOf(HasSubstr(kActive), HasSubstr("cycles in which the SM had warps")));
  // Sums are weighted by time where there are no cycles.
  double product = 0, time = 0;
  for (const LaunchRow& l : d.launches) {
    ASSERT_TRUE(l.tensor_active_pct);
    product += *l.tensor_active_pct * *l.time_ns;
    time += *l.time_ns;
  }
  ASSERT_TRUE(d.totals.tensor_active_pct);
  EXPECT_NEAR(*d.totals.tensor_active_pct, product / time, 1e-9);
  // How much work was done does not follow from it.
  for (const KernelRow& k : d.kernels) EXPECT_TRUE(*k.tensor_active_pct < 2 || !k.tensor_of_ceiling_pct) << k.name;
}

// What llm.c's profile_gpt2cu.py collects: time, bytes, hmma cycles of active cycles, no cycles.
ForeignReport as_llmc_collects() {
  ForeignReport r = ncu_report("mixed_nvtx.ncu-rep");
  rename(r, kElapsed, kHmmaActive);
  without_cycles(r);
  return r;
}

TEST(TensorUse, HmmaCyclesAreShownUnderTheirName) {
  const ProfileDocument d = tensor_document(as_llmc_collects());
  EXPECT_EQ(d.collection.tensor_metric, kHmmaActive);
  EXPECT_TRUE(d.totals.tensor_active_pct);
  for (const PassRow& p : d.passes) EXPECT_TRUE(p.tensor_active_pct) << p.name;
  ASSERT_NE(missing(d, "tensor_use_other_metric"), nullptr);
  EXPECT_EQ(missing(d, "tensor_use_other_metric")->severity, "notice");
  EXPECT_THAT(missing(d, "tensor_use_other_metric")->detail, AllOf(HasSubstr(kHmmaActive), HasSubstr("fp16, bf16 and tf32 only")));
  EXPECT_THAT(missing(d, "metrics_not_in_report")->detail, Not(HasSubstr(kElapsed)));
}

// A product had the floor of its bytes alone, and the headline was several times what anybody could win.
TEST(TensorUse, AKernelOfUnknownTensorWorkHasNoFloorAndIsInNoTotal) {
  Ceilings ceilings;
  ceilings.copy_bytes_per_s = 4.28e12;
  ceilings.matmul_flops_per_s["bf16"] = 7e14;
  const auto with_ceilings = [&](const ForeignReport& r) { return build_profile(to_recording(r, {}), std::nullopt, ceilings, {}); };
  const ProfileDocument d = with_ceilings(as_llmc_collects()), whole = with_ceilings(ncu_report("mixed_nvtx.ncu-rep"));
  double headroom_ns = 0, without_ns = 0;
  int64_t without = 0;
  for (const LaunchRow& l : d.launches) {
    EXPECT_EQ(l.floor_ns.has_value(), *l.tensor_active_pct < 2) << l.name;
    EXPECT_EQ(l.headroom_ns.has_value(), l.floor_ns.has_value());
    headroom_ns += l.headroom_ns.value_or(0);
    if (l.floor_ns) continue;
    ++without;
    without_ns += *l.time_ns;
  }
  ASSERT_GT(without, 0);
  EXPECT_EQ(d.totals.launches_without_floor, without);
  EXPECT_NEAR(*d.totals.without_floor_ns, without_ns, 1e-6);
  EXPECT_NEAR(*d.totals.kernel_headroom_ns, headroom_ns, 1e-6);
  EXPECT_LT(*d.totals.kernel_headroom_ns, *whole.totals.kernel_headroom_ns);
  const std::string words =
      fmt::format("{} launches of {:.3f} ms have no floor, as their tensor work is unknown.", without, without_ns * 1e-6);
  EXPECT_THAT(table_text(d, {TableBy::op, 50, 400, false}), HasSubstr("work need; " + words));
  ProfileDocument no_passes = d;
  no_passes.passes.clear();
  EXPECT_THAT(table_text(no_passes, {TableBy::kernel, 50, 400, false}), HasSubstr("\n" + words));
  EXPECT_EQ(device_facts(d).back().after,
            fmt::format("above the floors of the kernels themselves, without {:.3f} ms of kernels that have none", without_ns * 1e-6));
  ForeignReport one_lacks = ncu_report("mixed_nvtx.ncu-rep");
  std::erase_if(one_lacks.results[0].values, [&](const auto& v) { return one_lacks.metrics[v.first].starts_with("sm__pipe_tensor"); });
  EXPECT_FALSE(with_ceilings(one_lacks).launches[0].floor_ns) << "others have tensor use: it may have worked as much";
  EXPECT_FALSE(whole.totals.launches_without_floor);
  for (const LaunchRow& l : whole.launches) EXPECT_TRUE(l.floor_ns) << l.name;
}

TEST(TensorUse, ThePlainMetricIsPreferredToAnyOther) {
  const ForeignReport basic = ncu_report("fp32_basic.ncu-rep");  // holds the matrix-product pipe and the fp64 one besides
  ASSERT_TRUE(metric_index(basic,
                           "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.avg."
                           "pct_of_peak_sustained_elapsed"));
  EXPECT_EQ(tensor_document(basic).collection.tensor_metric, kElapsed);
  ForeignReport without = basic;
  rename(without, kElapsed, "gone");
  const ProfileDocument d = tensor_document(without);
  EXPECT_EQ(d.collection.tensor_metric,
            "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.avg.pct_of_peak_"
            "sustained_elapsed");
  EXPECT_THAT(missing(d, "tensor_use_other_metric")->detail, HasSubstr("matrix products only"));
}

TEST(TensorUse, OneQuantityForAllKernels) {
  ForeignReport r = ncu_report("mixed_nvtx.ncu-rep");
  const auto elapsed = *metric_index(r, kElapsed);
  r.metrics.push_back(kHmmaActive);
  const auto hmma = static_cast<uint32_t>(r.metrics.size() - 1);
  for (size_t i = 0; i < r.results.size(); ++i) {
    r.results[i].values.emplace_back(hmma, 50);
    if (i == 0) std::erase_if(r.results[i].values, [&](const auto& v) { return v.first == elapsed; });
  }
  const ProfileDocument d = tensor_document(r);
  EXPECT_EQ(d.collection.tensor_metric, kElapsed);
  EXPECT_FALSE(d.launches[0].tensor_active_pct) << "one kernel must not carry another quantity than the others";
  EXPECT_TRUE(d.launches[1].tensor_active_pct);
}

ForeignReport with_instructions_only() {
  ForeignReport r = ncu_report("mixed_nvtx.ncu-rep");
  rename(r, kElapsed, "gone");
  r.metrics.push_back(kInstructions);
  for (size_t i = 0; i < r.results.size(); ++i)
    r.results[i].values.emplace_back(static_cast<uint32_t>(r.metrics.size() - 1), i % 2 ? 1.5e6 : 0.0);
  return r;
}

TEST(TensorUse, ACountOfInstructionsIsShownAsACount) {
  const ProfileDocument d = tensor_document(with_instructions_only());
  EXPECT_FALSE(d.collection.tensor_metric);
  EXPECT_EQ(d.collection.tensor_instructions_metric, kInstructions);
  EXPECT_FALSE(d.totals.tensor_active_pct);
  EXPECT_DOUBLE_EQ(*d.totals.tensor_instructions, 6e6);
  EXPECT_THAT(missing(d, "tensor_use_other_metric")->detail, AllOf(HasSubstr(kInstructions), HasSubstr("6000000 instructions")));
  TableOptions o;
  o.width = 200;
  EXPECT_THAT(table_text(d, o), AllOf(HasSubstr("6.0M inst"), HasSubstr(kInstructions)));
  EXPECT_THAT(markdown_text(d, 12), HasSubstr("1.5M inst"));
}

TEST(TensorUse, EveryViewNamesTheMetric) {
  const ProfileDocument d = tensor_document(as_llmc_collects());
  TableOptions o;
  o.width = 300;
  EXPECT_THAT(table_text(d, o), AllOf(HasSubstr("notice tensor_use_other_metric"), HasSubstr(kHmmaActive)));
  EXPECT_THAT(html_text(d), AllOf(HasSubstr("tensor_use_other_metric"), HasSubstr(kHmmaActive)));
  std::string escaped = kHmmaActive;  // Markdown would take the underscores for emphasis
  for (size_t at = 0; (at = escaped.find('_', at)) != std::string::npos; at += 2) escaped.insert(at, "\\");
  EXPECT_THAT(markdown_text(d, 12), HasSubstr(escaped));
  const ProfileDocument back = profile_from_json(to_json(d), "made");
  EXPECT_EQ(back.collection.tensor_metric, kHmmaActive);
}

ForeignReport table_with_tensor_use(const std::string& pct, const std::string& time_ns) {
  return read_ncu_csv(fmt::format("ID,Process ID,Kernel Name,gpu__time_duration.sum,{}\n,,,ns,%\n0,5,gemm,{},{}\n", kElapsed, time_ns, pct),
                      "x");
}

TEST(TensorUse, ATableOfMoreThan100PercentIsShownWithANotice) {
  const ProfileDocument d = tensor_document(table_with_tensor_use("200", "100000"));
  EXPECT_EQ(d.totals.tensor_active_pct, 200.0) << "shown as it was read";
  ASSERT_NE(missing(d, "tensor_use_above_100"), nullptr);
  EXPECT_EQ(missing(d, "tensor_use_above_100")->severity, "notice");
  EXPECT_EQ(missing(d, "tensor_use_above_100")->count, 1);
  TableOptions o;
  o.width = 300;
  EXPECT_THAT(table_text(d, o), AllOf(HasSubstr("200.0"), HasSubstr("notice tensor_use_above_100: kernel 0 'gemm' at 200.0%.")));
  EXPECT_EQ(missing(tensor_document(table_with_tensor_use("99", "100000")), "tensor_use_above_100"), nullptr);
}

TEST(TensorUse, APercentageIsRefusedInTheWordsOfWhatIsAccepted) {
  for (const char* accepted : {"-0.99", "0", "101", "1000"}) EXPECT_EQ(table_with_tensor_use(accepted, "5").results.size(), 1u) << accepted;
  for (const char* refused : {"-1", "1001"}) {
    try {
      table_with_tensor_use(refused, "5");
      ADD_FAILURE() << refused;
    } catch (const stepscope::InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr(fmt::format("is '{}': expected a percentage above -1 and at most 1000", refused)));
    }
  }
}

TEST(TensorUse, ADiffOfTwoQuantitiesSaysSo) {
  const ProfileDocument plain = tensor_document(ncu_report("mixed_nvtx.ncu-rep")), llmc = tensor_document(as_llmc_collects());
  DiffText text;
  text.width = 400;
  const ProfileDiff same = diff_profiles(plain, plain), other = diff_profiles(plain, llmc);
  EXPECT_THAT(diff_table(same, text), Not(HasSubstr("tensor use from")));
  const std::string words = fmt::format("tensor use from {} -> {}", kElapsed, kHmmaActive);
  EXPECT_THAT(diff_table(other, text), HasSubstr(words));
  EXPECT_THAT(diff_markdown(other, text), HasSubstr(words));
  EXPECT_THAT(diff_json(other, text).dump(), HasSubstr("tensor use from"));
  EXPECT_FALSE(other.unlike()) << "times can still be compared";
  // A document of before the field was written has the plain metric.
  ProfileDocument old = plain;
  old.collection.tensor_metric.reset();
  EXPECT_THAT(diff_table(diff_profiles(old, llmc), text), HasSubstr(words));
  EXPECT_THAT(diff_table(diff_profiles(old, plain), text), Not(HasSubstr("tensor use from")));
}

// ---- reports that ncu wrote with these metrics: tests/device/record_tensor_reports.sh records them ----------

class RecordedTensor : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"tensor_exact", "tensor_active", "tensor_llmc", "tensor_inst"})
      for (const char* ending : {".ncu-rep", ".raw.base.csv"})
        if (!std::filesystem::exists(std::string(INGEST_DATA) + "/" + name + ending))
          GTEST_SKIP() << "not recorded yet: " << name << ending << "; tests/device/record_tensor_reports.sh makes it on a GPU machine";
  }
};

TEST_F(RecordedTensor, ReportAndTableOfEachSetGiveOneDocument) {
  for (const std::string name : {"tensor_exact", "tensor_active", "tensor_llmc", "tensor_inst"}) {
    const ProfileDocument a = tensor_document(ncu_report(name + ".ncu-rep")), b = tensor_document(ncu_csv(name + ".raw.base.csv"));
    EXPECT_EQ(a.collection.tensor_metric, b.collection.tensor_metric) << name;
    ASSERT_EQ(a.launches.size(), b.launches.size()) << name;
    for (size_t i = 0; i < a.launches.size(); ++i) {
      ASSERT_EQ(a.launches[i].tensor_active_pct.has_value(), b.launches[i].tensor_active_pct.has_value()) << name;
      EXPECT_NEAR(a.launches[i].tensor_active_pct.value_or(0), b.launches[i].tensor_active_pct.value_or(0), 0.02) << name;
      EXPECT_EQ(a.launches[i].tensor_instructions, b.launches[i].tensor_instructions) << name;
    }
  }
}

// The conversion against what the chip says itself: both percentages of the same launches.
TEST_F(RecordedTensor, TheConversionIsWhatNcuPrintsForAllCycles) {
  const ForeignReport exact = ncu_report("tensor_exact.ncu-rep");
  ASSERT_TRUE(metric_index(exact, kElapsed) && metric_index(exact, kActive));
  ForeignReport active_only = exact;
  rename(active_only, kElapsed, "gone");
  const ProfileDocument truth = tensor_document(exact), converted = tensor_document(active_only);
  EXPECT_EQ(truth.collection.tensor_metric, kElapsed);
  EXPECT_THAT(*converted.collection.tensor_metric, HasSubstr(std::string(kActive) + " x sm__cycles_active.avg / "));
  double most = 0;
  ASSERT_EQ(truth.launches.size(), converted.launches.size());
  for (size_t i = 0; i < truth.launches.size(); ++i) {
    EXPECT_NEAR(*converted.launches[i].tensor_active_pct, *truth.launches[i].tensor_active_pct,
                0.02 * *truth.launches[i].tensor_active_pct + 0.01);
    most = std::max(most, *truth.launches[i].tensor_active_pct);
  }
  EXPECT_GT(most, 5) << "no launch used the tensor cores, so nothing was compared";
}

TEST_F(RecordedTensor, EachSetFillsTheColumn) {
  const ProfileDocument active = tensor_document(ncu_report("tensor_active.ncu-rep")),
                        llmc = tensor_document(ncu_report("tensor_llmc.ncu-rep")),
                        inst = tensor_document(ncu_report("tensor_inst.ncu-rep"));
  EXPECT_THAT(*active.collection.tensor_metric, HasSubstr(std::string(kActive) + " x "));
  EXPECT_NE(missing(active, "tensor_use_converted"), nullptr);
  EXPECT_EQ(llmc.collection.tensor_metric, kHmmaActive);
  EXPECT_NE(missing(llmc, "tensor_use_other_metric"), nullptr);
  EXPECT_EQ(inst.collection.tensor_instructions_metric, kInstructions);
  EXPECT_TRUE(active.totals.tensor_active_pct && *active.totals.tensor_active_pct > 0);
  EXPECT_TRUE(llmc.totals.tensor_active_pct && *llmc.totals.tensor_active_pct > 0);
  EXPECT_TRUE(inst.totals.tensor_instructions && *inst.totals.tensor_instructions > 0);
}

}  // namespace
