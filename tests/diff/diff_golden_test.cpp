// Every text of one diff, as whole files (tests/golden.h says how a change of them is accepted).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "profiler/diff/diff.h"
#include "tests/golden.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;

ProfileDocument fixture_document() {
  return build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
}

// B: another variant of a norm in place of A's kernel, a product 10% slower, a kernel that is gone and one that is new, a copy more, other
// flags, another clock, untraced steps 4% longer, throttled for two reasons instead of one.
ProfileDocument changed_document() {
  ProfileDocument b = fixture_document();
  b.run.command += " --variant gelu_forward=other";
  b.kernels.front().time_ns *= 1.1;
  b.kernels[1].name = "another_kernel<float>(float*, int)";
  b.kernels[1].time_ns *= 0.8;
  KernelRow extra = b.kernels.back();
  extra.name = "new_kernel(float*)";
  extra.time_ns = 1.25e5;
  extra.launches = 3;
  b.kernels.pop_back();
  b.kernels.push_back(extra);
  for (OpRow& o : b.ops) o.time_ns *= o.pass == "backward" ? 1.05 : 0.98;
  for (PassRow& p : b.passes) p.time_ns *= p.name == "backward" ? 1.05 : 0.98;
  for (LayerRow& l : b.layers) l.time_ns *= 1 + 0.01 * static_cast<double>(l.layer);
  if (b.timing.step_time_ns.median) *b.timing.step_time_ns.median *= 1.04;
  if (b.totals.time_ns) *b.totals.time_ns *= 1.03;
  if (b.totals.idle_ns) *b.totals.idle_ns += 3e4;
  b.environment.throttle_reasons = {"sw_power_cap", "hw_thermal_slowdown"};
  return b;
}

TEST(DiffGolden, TablesMarkdownAndJsonOfTwoDocuments) {
  const ProfileDocument a = fixture_document(), b = changed_document();
  const ProfileDiff d = diff_profiles(a, b);
  for (const auto& [name, by] :
       {std::pair{"pass", DiffBy::pass}, {"op", DiffBy::op}, {"kernel", DiffBy::kernel}, {"layer", DiffBy::layer}}) {
    DiffText o{"a.json", "b.json"};
    o.by = by;
    o.top = 2;
    expect_golden(std::string("diff/data/by_") + name + ".txt", diff_table(d, o));
    o.top = 50;
    o.width = 300;
    o.color = true;
    expect_golden(std::string("diff/data/by_") + name + "-wide-colour.txt", diff_table(d, o));
    expect_golden(std::string("diff/data/by_") + name + ".md", diff_markdown(d, o));
    if (by == DiffBy::kernel) expect_golden("diff/data/diff.json", diff_json(d, o).dump(1) + "\n");
  }
}

// Nothing sums up: no totals, no idle time, another program.
TEST(DiffGolden, DocumentsThatKnowLess) {
  ProfileDocument a = fixture_document(), b = changed_document();
  for (ProfileDocument* d : {&a, &b}) {
    d->totals.idle_ns.reset();
    d->timing = {};
    d->ceilings = {};
    for (KernelRow& k : d->kernels) k.floor_ns.reset(), k.dram_read_bytes.reset();
  }
  DiffText o{"a.json", "b.json"};
  expect_golden("diff/data/knows_less.txt", diff_table(diff_profiles(a, b), o));
}

}  // namespace
