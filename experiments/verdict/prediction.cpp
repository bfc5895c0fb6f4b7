#include "experiments/verdict/prediction.h"

#include <fmt/format.h>

#include <ctime>
#include <optional>
#include <sstream>
#include <vector>

#include "base/errors.h"
#include "base/revision.h"
#include "base/sha256.h"
#include "experiments/runner/child_process_group.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;

// What a git command printed; nullopt when it failed or there is no git. Only reads: plumbing, no locks, no prompts.
std::optional<std::string> git(const fs::path& root, std::vector<std::string> arguments) {
  std::vector<std::string> argv{"git", "-C", root.string(), "--no-pager"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  try {
    ChildProcessGroup child({.argv = argv,
                             .environment = {{"GIT_OPTIONAL_LOCKS", "0"}, {"GIT_TERMINAL_PROMPT", "0"}, {"LC_ALL", "C"}},
                             .keeps_returns = true});  // a file is told by the hash of its bytes
    std::string out, line;
    while (child.read_line(line, deadline, nullptr) == ChildProcessGroup::Read::line) out += line + "\n";
    const auto ending = child.wait(deadline);
    if (!ending || !ending->exited || ending->code != 0) return std::nullopt;
    return out;
  } catch (const stepscope::InputError&) {
    return std::nullopt;  // no git
  }
}

// The lines lost whether the last one ended in a newline: one of both is the file.
bool has_hash(const std::string& text, const std::string& sha256) {
  return gpt2::sha256_text(text) == sha256 || (!text.empty() && gpt2::sha256_text(text.substr(0, text.size() - 1)) == sha256);
}

std::optional<std::time_t> utc(const std::string& iso) {
  std::tm t{};
  if (!strptime(iso.c_str(), "%Y-%m-%dT%H:%M:%SZ", &t)) return std::nullopt;
  return timegm(&t);
}

std::string without_dirty(std::string revision) {
  if (const size_t at = revision.find(stepscope::kDirty); at != std::string::npos) revision.resize(at);
  return revision;
}

bool knows(const fs::path& root, const std::string& revision) {
  return !revision.empty() && revision.find_first_not_of("0123456789abcdef") == std::string::npos &&
         git(root, {"cat-file", "-e", revision + "^{commit}"}).has_value();
}

PredictionProof not_shown(const std::string& why) { return {false, fmt::format("{}: {}", kNotShownEarlier, why), {}, {}}; }

}  // namespace

PredictionProof prove_prediction(const fs::path& root, const fs::path& file, const std::string& file_sha256, const std::string& revision,
                                 const std::string& measured_at) {
  const std::string measured = without_dirty(revision);
  if (!knows(root, measured))
    return not_shown(fmt::format("no history here holds the measured revision {}", measured.empty() ? "(unknown)" : measured));
  const std::string path = fs::absolute(file).lexically_normal().lexically_relative(fs::absolute(root).lexically_normal()).generic_string();
  const auto log = git(root, {"log", "--format=%H %ct %cI", measured, "--", path});
  // Newest first; the oldest commit with these words is the one that counts.
  std::istringstream lines(log.value_or(""));
  PredictionProof found;
  std::time_t committed = 0;
  for (std::string commit, seconds, date; lines >> commit >> seconds >> date;)
    if (const auto text = git(root, {"show", commit + ":" + path}); text && has_hash(*text, file_sha256)) {
      found.commit = commit;
      found.committed_at = date;
      committed = static_cast<std::time_t>(std::stoll(seconds));
    }
  if (!found.commit)
    return not_shown(fmt::format("no commit up to the measured revision {} holds {} as it was measured", measured.substr(0, 12), path));
  const auto at = utc(measured_at);
  if (!at || committed > *at)
    return not_shown(fmt::format("commit {} of {} is not older than the measurement of {}", found.commit->substr(0, 12),
                                 *found.committed_at, measured_at));
  found.shown_earlier = true;
  found.sentence = fmt::format("the prediction stands in commit {} of {}, which the measured revision contains",
                               found.commit->substr(0, 12), *found.committed_at);
  return found;
}

bool renew_prediction_proof(VerdictDocument& document, const fs::path& root, const fs::path& studies) {
  if (!document.experiment) return false;
  ExperimentSection& e = *document.experiment;
  if (e.prediction && !knows(root, without_dirty(document.code.first_revision()))) return false;
  PredictionProof proof =
      prove_prediction(root, studies / (document.name + ".yaml"), e.file_sha256, document.code.first_revision(), document.at);
  const bool changed = !e.prediction || e.prediction->sentence != proof.sentence;
  e.prediction = std::move(proof);
  return changed;
}

}  // namespace experiments
