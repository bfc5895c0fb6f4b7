#include "experiments/session/campaign_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/say.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/ledger.h"
#include "experiments/verdict/page.h"
#include "experiments/verdict/stale.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using stepscope::InputError;

// One that cannot be read stands for nothing, and is measured anew.
std::optional<VerdictDocument> standing_verdict(const std::string& name, const fs::path& folder, const fs::path& studies) {
  try {
    return last_verdict(name, folder, studies);
  } catch (const InputError& error) {
    stepscope::say(error.what());
    return std::nullopt;
  }
}

bool has_measured(const VerdictDocument& d) {
  return std::any_of(d.workloads.begin(), d.workloads.end(), [](const WorkloadSection& w) { return !w.runs.empty() || !w.pairs.empty(); });
}

struct Ran {
  const Experiment* experiment = nullptr;
  std::optional<VerdictDocument> before;  // the verdict that stood
  VerdictDocument document;
  bool kept_before = false;  // the run was cut short, so the verdict before it stands
};

// The folders of verdicts, made before anything is measured, so that what takes hours does not end at one that cannot be written. A new one
// that is still empty at the end goes again: its experiment was refused. Two commands that measure into one folder would replace each other's
// rounds, and disturb each other: the second is refused.
class VerdictFolders {
 public:
  VerdictFolders(const fs::path& results, const std::vector<Experiment>& experiments) {
    for (const Experiment& e : experiments) {
      const fs::path folder = results / e.name;
      if (!fs::exists(folder)) new_.push_back(folder);
      gpt2::check_folder_writable(folder, "the verdict's folder");
      locks_.emplace_back(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!gpt2::lock_as_writer(locks_.back().get(), false))
        throw InputError(fmt::format("{}: another command measures into it; wait for it, or choose another --out", folder.string()));
    }
  }
  ~VerdictFolders() {
    std::error_code holds_something;
    for (const fs::path& folder : new_) fs::remove(folder, holds_something);
  }
  VerdictFolders(const VerdictFolders&) = delete;
  VerdictFolders& operator=(const VerdictFolders&) = delete;

 private:
  std::vector<fs::path> new_;
  std::vector<gpt2::Descriptor> locks_;
};

// Several experiments in one command are one campaign. One that cannot be run here does not keep the others from running.
class Campaign {
 public:
  Campaign(ExperimentSession& session, const CampaignOptions& options) : session_(session), o_(options) {}

  // Returns the exit code.
  int run(const std::vector<Experiment>& experiments) {
    const VerdictFolders folders(o_.folder, experiments);
    int worst = 0;
    const auto worse = [&](const Experiment& e, const std::exception& error, int code) {
      stepscope::say(fmt::format("{}: {}", e.name, error.what()));
      worst = std::max(worst, code);
    };
    std::vector<bool> heard(experiments.size(), false);
    const auto left_off = left_off_of(experiments);
    for (size_t i = 0; i < left_off.size(); ++i)
      if (left_off[i])
        for (const WorkloadSection& w : left_off[i]->workloads)
          if (stands_in(experiments[i], w)) recorded_.emplace(experiments[i].name, w.workload);
    // Kept as soon as it is decided: the rest may take hours, and not end well.
    session_.run(
        experiments, read_ledger(ledger_file(o_.folder)),
        [&](size_t i, const ExperimentSession::Outcome& o) {
          const Experiment& e = experiments[i];
          heard[i] = true;
          try {
            if (o.failure) std::rethrow_exception(o.failure);
            keep(e, o.document);
          } catch (const InputError& error) {
            if (experiments.size() == 1) throw;
            worse(e, error, 2);
          } catch (const stepscope::MachineError& error) {
            if (experiments.size() == 1) throw;
            worse(e, error, 3);
          }
        },
        [&](size_t i, const VerdictDocument& document) {
          if (o_.planted) return;
          save_verdict(attempt_of(experiments[i].name), document);
          record_same_code(experiments[i], document);
        },
        left_off);
    bool all_heard = true;
    for (size_t i = 0; i < experiments.size(); ++i) {
      if (heard[i]) continue;
      stepscope::say(fmt::format("{}: stopped before anything of it was measured", experiments[i].name));
      all_heard = false;
    }
    const int code = finish();
    if (worst > 0) return worst;
    return code == 0 && !all_heard ? 4 : code;
  }

  // What was decided by a command before this one stands, and belongs to the campaign. Throws stepscope::InputError for a file that cannot be
  // read.
  bool stands(const Experiment& e) {
    if (fs::exists(attempt_of(e.name)) && has_measured(load_verdict(attempt_of(e.name)))) return false;
    if (!fs::exists(verdict_of(e.name))) return false;
    VerdictDocument d = load_verdict(verdict_of(e.name));
    if (was_cut_short(d)) return false;
    if (const std::string differs = differs_from(d, e); !differs.empty()) {
      stepscope::say(fmt::format("{}: its verdict is of {}: it is measured from the start", e.name, differs));
      return false;
    }
    if (const auto other = measured_anew(d, e); !other.empty()) {
      stepscope::say(fmt::format("{}: {}: measured anew{}", e.name, fmt::join(other, ", "),
                                 other.size() < d.workloads.size() ? "; its other workloads stand" : ""));
      return false;
    }
    stepscope::say(fmt::format("{}: is decided, and left out", e.name));
    stood_.push_back({&e, d, d, false});
    return true;
  }

  // Corrects all, those that stood too: one at a time they would claim more often than their level. Returns the exit code.
  int finish() {
    correct();
    if (o_.json) {
      ordered_json all = ordered_json::array();
      for (const auto* list : {&stood_, &ran_})
        for (const Ran& r : *list) all.push_back(to_json(r.document));
      fmt::print("{}\n", all.dump(1));
    }
    return exit_code();
  }

 private:
  // Of what else a decided verdict is; "" = of this experiment as it would be measured here.
  std::string differs_from(const VerdictDocument& d, const Experiment& e) {
    std::string differs = session_.differs_from(d, e);
    for (const Workload& w : e.workloads)
      if (differs.empty() &&
          std::none_of(d.workloads.begin(), d.workloads.end(), [&](const WorkloadSection& s) { return s.workload == w.text(); }))
        differs = "other workloads";
    return differs;
  }

  bool is_asked_for_again(const WorkloadSection& w) const {
    return std::any_of(o_.again.begin(), o_.again.end(), [&](const std::string& words) { return asks_for(words, w.workload); });
  }

  // Workloads of it whose arms are others now or that are asked for again, and why.
  std::vector<std::string> measured_anew(const VerdictDocument& d, const Experiment& e) const {
    std::vector<std::string> out;
    for (const WorkloadSection& w : d.workloads)
      if (std::string other = other_buckets(w, e); !other.empty())
        out.push_back(std::move(other));
      else if (is_asked_for_again(w))
        out.push_back(w.workload + ": asked for again");
    return out;
  }

  // Unfinished documents, and decided ones of which some workloads stand; an interrupted run with no verdict before it is the verdict itself.
  std::vector<std::optional<VerdictDocument>> left_off_of(const std::vector<Experiment>& experiments) {
    std::vector<std::optional<VerdictDocument>> out(o_.go_on ? experiments.size() : 0);
    for (size_t i = 0; i < out.size(); ++i) {
      const std::string& name = experiments[i].name;
      if (fs::exists(attempt_of(name))) out[i] = load_verdict(attempt_of(name));
      // Where nothing was measured there is nothing that another plan or device would spoil; the verdict beside such an attempt stands.
      if (out[i] && !has_measured(*out[i])) out[i].reset();
      if (!out[i] && fs::exists(verdict_of(name))) {
        VerdictDocument d = load_verdict(verdict_of(name));
        const size_t anew = measured_anew(d, experiments[i]).size();
        const bool partly_stands = anew > 0 && anew < d.workloads.size() && differs_from(d, experiments[i]).empty();
        if (partly_stands) std::erase_if(d.workloads, [&](const WorkloadSection& w) { return is_asked_for_again(w); });
        if ((was_cut_short(d) && has_measured(d)) || partly_stands) out[i] = std::move(d);
      }
      if (!out[i]) stepscope::say(fmt::format("{}: nothing was left unfinished: it is measured from the start", name));
    }
    return out;
  }

  fs::path page_of(const std::string& name) const { return o_.folder / name / kPageName; }
  fs::path verdict_of(const std::string& name) const { return o_.folder / name / "verdict.json"; }
  // What has been measured while it is being measured, and what was cut short.
  fs::path attempt_of(const std::string& name) const { return o_.folder / name / "last-attempt.json"; }

  void keep(const Experiment& e, const VerdictDocument& document) {
    Ran r;
    r.experiment = &e;
    r.before = standing_verdict(e.name, o_.folder, o_.studies);
    r.document = document;
    r.kept_before = was_cut_short(r.document) && r.before && !was_cut_short(*r.before);
    // Before it is said: whoever reads may be gone, and then the first word ends this program.
    save(r);
    // A planted slowdown is a test of the procedure.
    if (!o_.planted) record_same_code(e, r.document);
    ran_.push_back(std::move(r));
    if (!o_.json) fmt::print("{}\n", summary_of(ran_.back().document));
    std::fflush(stdout);
  }

  // Same code that was measured says how often the procedure is wrong. Each measurement once, by the command that made it and as soon as it is
  // decided: what is recorded only with a document that is whole depends on who goes on with one that was cut short.
  void record_same_code(const Experiment& e, const VerdictDocument& document) {
    for (const WorkloadSection& w : document.workloads) {
      if (w.reason != reason::kSameCode || !recorded_.emplace(e.name, w.workload).second) continue;
      const Decision d = decision_of(w.statistics);
      if (!d.log_ratio) continue;
      append_to_ledger(ledger_file(o_.folder), {document.at, document.environment.device, w.workload, 0, d.verdict, d.log_ratio->n,
                                                d.log_ratio->mean, d.log_ratio->sd, "", document.thresholds.minimum_effect_pct});
    }
  }

  void save(const Ran& r) const {
    const std::string& name = r.experiment->name;
    if (o_.planted) {
      save_verdict(o_.folder / name / "planted.json", r.document);
    } else if (r.kept_before) {
      save_verdict(attempt_of(name), r.document);
      stepscope::say(
          fmt::format("{}: cut short, so the verdict of {} stands; this attempt is {}", name, r.before->at, attempt_of(name).string()));
    } else {
      save_verdict(verdict_of(name), r.document);
      write_page(page_of(name), r.document);
      fs::remove(attempt_of(name));
    }
  }

  void correct() {
    std::vector<Ran*> all;
    for (auto* list : {&stood_, &ran_})
      for (Ran& r : *list) all.push_back(&r);
    std::vector<VerdictDocument> documents;
    for (const Ran* r : all) documents.push_back(r->document);
    const std::vector<bool> corrected = correct_campaign(documents, {});
    for (size_t i = 0; i < all.size(); ++i) {
      if (!corrected[i]) continue;
      all[i]->document = documents[i];
      save(*all[i]);
    }
    const auto of_the_device_of = [&](const VerdictDocument& d) {
      return std::count_if(documents.begin(), documents.end(),
                           [&](const VerdictDocument& other) { return other.environment.device == d.environment.device; });
    };
    for (size_t i = 0; i < all.size() && !o_.json; ++i)
      if (corrected[i]) fmt::print("corrected for {} experiments:\n{}\n", of_the_device_of(documents[i]), summary_of(documents[i]));
  }

  int exit_code() const {
    int worst = 0;
    const auto add = [&](int code) {
      if (code == 1 || (code == 4 && worst == 0)) worst = code;
    };
    for (const Ran& r : ran_) {
      int code = exit_code_of(r.document.verdict);
      // Of experiments that are run again: an idea that never helped is no regression.
      if (o_.rerun && is_regression(r.before, r.document))
        code = 1;
      else if (o_.rerun && code == 1)
        code = 0;
      add(code);
    }
    // One that stood before cannot have become worse.
    if (!o_.rerun)
      for (const Ran& r : stood_) add(exit_code_of(r.document.verdict));
    return worst;
  }

  ExperimentSession& session_;
  const CampaignOptions& o_;
  std::vector<Ran> ran_, stood_;
  std::set<std::pair<std::string, std::string>> recorded_;  // {experiment, workload}: in the ledger by now, or a command before this one's
};

}  // namespace

fs::path ledger_file(const fs::path& folder) { return folder / "aa-ledger.jsonl"; }

std::optional<VerdictDocument> last_verdict(const std::string& name, const fs::path& folder, const fs::path& studies) {
  for (const fs::path& f : {folder / name / "verdict.json", studies / name / "verdict.json"})
    if (fs::exists(f)) return load_verdict(f);
  return std::nullopt;
}

std::vector<std::string> keep_those_with_enough_gpus(std::vector<Experiment>& experiments, int gpus) {
  std::vector<std::string> left_out;
  std::erase_if(experiments, [&](const Experiment& e) {
    int64_t most = 0;
    for (const Workload& w : e.workloads)
      for (const char arm : {'A', 'B'})
        if (trainer_of(e, arm) != "reference") most = std::max(most, gpus_of(e, w, arm));
    if (most > gpus)
      left_out.push_back(fmt::format("{}: trains on {} GPUs, and {} {} visible here", e.name, most, gpus, gpus == 1 ? "is" : "are"));
    return most > gpus;
  });
  return left_out;
}

void keep_changed(std::vector<Experiment>& experiments, const fs::path& folder, const fs::path& root, const fs::path& studies,
                  const std::string& device) {
  SourceHashes sources(root);
  std::erase_if(experiments, [&](const Experiment& e) {
    const auto verdict = standing_verdict(e.name, folder, studies);
    return verdict && stale_reasons(*verdict, e, sources, device).empty();
  });
}

bool asks_for(std::string_view words, std::string_view workload) {
  for (size_t at = workload.find(words); !words.empty() && at != workload.npos; at = workload.find(words, at + 1)) {
    const size_t end = at + words.size();
    if ((at == 0 || workload[at - 1] == ' ') && (end == workload.size() || workload[end] == ' ')) return true;
  }
  return false;
}

int run_campaign(ExperimentSession& session, const std::vector<Experiment>& experiments, const CampaignOptions& options) {
  Campaign campaign(session, options);
  std::vector<Experiment> open;
  int unreadable = 0;
  for (const Experiment& e : experiments) {
    try {
      if (!options.go_on || !campaign.stands(e)) open.push_back(e);
    } catch (const InputError& error) {
      if (experiments.size() == 1) throw;
      stepscope::say(fmt::format("{}: {}; delete it, or leave --continue out", e.name, error.what()));
      unreadable = 2;
    }
  }
  const int code = open.empty() ? campaign.finish() : campaign.run(open);
  return unreadable > 0 && code != 3 ? unreadable : code;
}

}  // namespace experiments
