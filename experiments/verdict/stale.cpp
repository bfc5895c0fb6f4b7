#include "experiments/verdict/stale.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/sha256.h"
#include "experiments/gate/source_scan.h"
#include "gpt2/distributed/bucket_size.h"

namespace experiments {

namespace fs = std::filesystem;

std::vector<std::string> trainer_sources(const fs::path& root, const std::string& trainer) {
  std::vector<std::string> out;
  for (const auto& [file, hash] : gate::hash_step_sources(root, trainer))
    if (!file.ends_with("#flags")) out.push_back(file);
  return out;
}

std::string newer_source(const fs::path& root, const std::string& trainer, const fs::path& program) {
  std::error_code missing;
  const auto built = fs::last_write_time(program, missing);
  if (missing) return "";
  for (const std::string& file : trainer_sources(root, trainer))
    if (fs::last_write_time(root / file) > built) return file;
  return "";
}

namespace {
std::string hash_of_all(const fs::path& root, const std::string& trainer, gate::HashOf what) {
  const auto sources = gate::hash_step_sources(root, trainer, what);
  if (sources.empty()) return "";
  gpt2::Sha256 hash;
  for (const auto& [file, content] : sources) hash.update(file + "\n" + content + "\n");
  return hash.hex();
}
}  // namespace

std::string hash_trainer_sources(const fs::path& root, const std::string& trainer) {
  return hash_of_all(root, trainer, gate::HashOf::code);
}

const std::string& SourceHashes::of(const std::string& trainer) {
  const auto [at, is_new] = of_code_.try_emplace(trainer);
  if (is_new) at->second = hash_trainer_sources(root_, trainer);
  return at->second;
}

bool SourceHashes::match(const std::string& hash, const std::string& trainer) {
  if (hash.empty()) return false;
  if (hash == of(trainer)) return true;
  const auto [at, is_new] = of_bytes_.try_emplace(trainer);
  if (is_new) at->second = hash_of_all(root_, trainer, gate::HashOf::bytes);
  return hash == at->second;
}

std::string other_buckets(const WorkloadSection& then, const Experiment& e) {
  std::vector<std::string> arms;
  for (const Workload& now : e.workloads)
    for (const char arm : {'A', 'B'}) {
      const std::optional<int64_t> mib = then.workload == now.text() ? bucket_mib_of(e, now, arm) : std::nullopt;
      const int64_t then_mib =
          (arm == 'A' ? then.a : then.b)
              .bucket_mib.value_or(std::stoll(flag_of(e, arm, "bucket-mib", std::to_string(gpt2::distributed::kBucketMib))));
      if (mib && *mib != then_mib) arms.push_back(fmt::format("in arm {} {} MiB, now {}", arm, then_mib, *mib));
    }
  return arms.empty() ? "" : fmt::format("{}: ranks exchanged other pieces of gradients ({})", then.workload, fmt::join(arms, "; "));
}

std::vector<std::string> stale_reasons(const VerdictDocument& verdict, const Experiment& e, SourceHashes& sources,
                                       const std::string& device) {
  std::vector<std::string> out;
  if (!verdict.experiment || verdict.experiment->file_sha256 != e.file_sha256) out.emplace_back("the experiment file changed");
  if (const std::string now = e.patch.empty() ? "" : gpt2::sha256_file(e.patch); verdict.code.patch_sha256 != now)
    out.emplace_back("the patch changed");
  // Both arms' sources: a change of the trainer may concern B alone.
  for (const char arm : {'A', 'B'}) {
    // A frozen baseline has its own manifest, and without one both arms mostly share a trainer.
    const bool hashed = arm == 'A' ? !e.frozen_baseline() : e.frozen_baseline() || trainer_of(e, 'B') != trainer_of(e, 'A');
    if (!hashed) continue;
    const std::string& measured = arm == 'A' ? verdict.code.a_sources_sha256 : verdict.code.b_sources_sha256;
    if (!sources.match(measured, trainer_of(e, arm)))
      out.push_back(fmt::format("the sources of the {} trainer changed", trainer_of(e, arm)));
  }
  for (const WorkloadSection& w : verdict.workloads)
    if (const std::string other = other_buckets(w, e); !other.empty()) out.push_back(other);
  for (const WorkloadSection& w : verdict.workloads)
    if (w.verdict == Verdict::invalid || w.reason == reason::kInterrupted) {
      out.push_back(fmt::format("the last run did not end in an answer ({})", w.reason));
      break;
    }
  const std::string& measured_on = verdict.environment.device;
  const bool on_cpu = trainer_of(e, 'B') == "reference";
  if (!on_cpu && !device.empty() && measured_on != device) out.push_back(fmt::format("measured on {}, here is {}", measured_on, device));
  return out;
}

}  // namespace experiments
