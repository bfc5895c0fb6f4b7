// Every variant of both GPU trainers under the collector's eye: one process each, a few steps of the model `tiny`, and the kernels that
// its row names must be in the trace, at every place of its op. A variant that quietly runs another fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <vector>

#include "fp32/trainer.h"
#include "gpt2/cuda/device_info.h"
#include "mixed/trainer.h"
#include "tests/cli/run_stepscope.h"
#include "tests/trainers/variant_launches.h"

namespace trainers {
namespace {

using gpt2::VariantFacts;
using nlohmann::json;

struct Seen {
  std::string refused;  // what the trainer said, where it refused
  std::vector<std::string> wrong;
};

// The first variant of a slot is not written into documents, the others are.
Seen look_at(const std::string& trainer, const VariantFacts& v, bool first_of_slot) {
  Seen seen;
  const auto folder = fresh_folder();
  const auto file = folder / "profile.json";
  // The smallest model with heads of 64 channels, which the attention for Hopper takes alone.
  const bool of_hopper = v.slot.starts_with("attention_") && v.name.starts_with("hopper");
  const bool by_its_sums = v.name == "attention_fold" || v.name == "softmax_identities";
  const bool wide_heads = of_hopper || by_its_sums;
  std::string arguments = "profile --trainer " + trainer + " --model " + (wide_heads ? "gpt3:c384" : "tiny") +
                          " --batch-size 2 --seq-len 256 --warmup 1 --steps 1 --traced-steps 1 --no-counters";
  if (v.slot == "linear_backward") arguments += " --matmul tf32";  // with fp32 its variants are one
  for (const auto& [slot, name] : v.choice) arguments += " --variant " + slot + "=" + name;
  const Outcome run = stepscope(arguments + " --out " + file.string(), "");
  if (run.exit_code == 2 || run.exit_code == 3) {
    seen.refused = run.err;
  } else if (!std::filesystem::exists(file)) {
    seen.wrong.push_back(fmt::format("exit code {}: {}", run.exit_code, run.err));
  } else {
    const json document = json::parse(slurp(file));
    seen.wrong = differences(v, document.at("launches"));
    const json& written = document.at("run").value("variants", json::object());
    if (written.value(v.slot, "") != (first_of_slot ? "" : v.name))
      seen.wrong.push_back(fmt::format("the document says {}={}", v.slot, written.value(v.slot, "(default)")));
  }
  std::filesystem::remove_all(folder);
  return seen;
}

void look_at_all(const std::string& trainer, const std::vector<VariantFacts>& variants) {
  if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  constexpr size_t kAtOnce = 8;
  std::vector<Seen> seen(variants.size());
  const auto look = [&](size_t i) { seen[i] = look_at(trainer, variants[i], i == 0 || variants[i - 1].slot != variants[i].slot); };
  look(0);  // alone: it measures ceilings and searches algorithms, which the others find in the cache
  for (size_t begin = 1; begin < variants.size(); begin += kAtOnce) {
    std::vector<std::future<void>> running;
    for (size_t i = begin; i < std::min(begin + kAtOnce, variants.size()); ++i) running.push_back(std::async(std::launch::async, look, i));
    for (auto& r : running) r.get();
  }
  for (size_t i = 0; i < variants.size(); ++i) {
    const std::string name = trainer + " " + variants[i].slot + "=" + variants[i].name;
    if (!seen[i].refused.empty()) {
      EXPECT_FALSE(variants[i].refused.empty()) << name << " is refused, and its row does not say that it can be: " << seen[i].refused;
      std::printf("%s is refused here: %s\n", name.c_str(), seen[i].refused.c_str());
    }
    for (const std::string& wrong : seen[i].wrong) ADD_FAILURE() << name << ": " << wrong;
  }
}

TEST(VariantLaunches, EveryVariantOfTheFp32TrainerLaunchesTheKernelsOfItsRow) { look_at_all("fp32", fp32::fp32_variant_facts()); }
TEST(VariantLaunches, EveryVariantOfTheMixedTrainerLaunchesTheKernelsOfItsRow) { look_at_all("mixed", mixed::mixed_variant_facts()); }

}  // namespace
}  // namespace trainers
