#include "experiments/verdict/fields.h"

#include <fmt/format.h>

#include <map>

namespace experiments {
namespace {

template <class Row>
using List = std::vector<Field<Row>>;

template <class T>
std::optional<T> parse_word(std::string_view text, std::initializer_list<T> all) {
  for (const T v : all)
    if (name(v) == text) return v;
  return std::nullopt;
}

}  // namespace

std::optional<Procedure> WordsOf<Procedure>::parse(std::string_view text) {
  return parse_word(text, {Procedure::alone, Procedure::in_turns});
}
std::optional<EqualClocksBy> WordsOf<EqualClocksBy>::parse(std::string_view text) {
  return parse_word(text, {EqualClocksBy::turns, EqualClocksBy::full_clock});
}

// ---- the experiment and where it ran
const List<VerdictDocument>& FieldsOf<VerdictDocument>::list() {
  using D = VerdictDocument;
  static const List<D> list{
      field<&D::schema>("schema", "", "`stepscope.verdict/2`; `stepscope.verdict/1` is read, and written as 2"),
      field<&D::name>("name", "", "the experiment file's, without `.yaml`"),
      field<&D::at>("at", "", "when it was written; UTC, ISO 8601"),
      field<&D::verdict>("verdict", "", "the worst of the workloads: invalid, slower, undecided, faster, same"),
      field<&D::experiment>("experiment", "", "the question; absent where two commands were compared"),
      field<&D::command>("command", "", "as typed, without folders of the machine that measured"),
      field<&D::code>("code", "", "what was measured"),
      field<&D::environment>("environment", "", "where it was measured"),
      field<&D::thresholds>("thresholds", "", "what the decisions use, fixed before the first pair"),
      field<&D::ledger>("ledger", "", "how often the procedure called identical code different on this device"),
      field<&D::workloads>("workloads", "", "one verdict for each"),
      optional_field<&D::content_sha256>("content_sha256", "", "hash over the compact JSON of all other fields; schema 1 has none"),
  };
  return list;
}

const List<ExperimentSection>& FieldsOf<ExperimentSection>::list() {
  using E = ExperimentSection;
  static const List<E> list{
      field<&E::question>("question", "", "from the experiment file, as are the next six"),
      field<&E::hypothesis>("hypothesis", "", "why the change should matter"),
      field<&E::change>("change", "", "what arm B has and arm A has not"),
      field<&E::baseline>("baseline", "", "`defaults`, or the name of a frozen baseline"),
      field<&E::trainer>("trainer", "", "arm A's"),
      field<&E::compound>("compound", "", "several changes at once: nobody knows which one did it"),
      field<&E::arithmetic>("arithmetic", "", "how the predicted saving was found"),
      field<&E::file_sha256>("file_sha256", "", "hash of the experiment file with its prediction"),
      field<&E::prediction>("prediction", "", "whether the history shows the prediction to be earlier; absent: nobody looked"),
  };
  return list;
}

const List<PredictionProof>& FieldsOf<PredictionProof>::list() {
  using P = PredictionProof;
  static const List<P> list{
      field<&P::shown_earlier>("shown_earlier", "",
                               "a commit that the measured revision contains, dated before the measurement, holds the file with this hash"),
      field<&P::sentence>("sentence", "", "the same in words, or why it is not shown"),
      field<&P::commit>("commit", "", "that commit"),
      field<&P::committed_at>("committed_at", "", "its date, ISO 8601"),
  };
  return list;
}

const List<CodeSection>& FieldsOf<CodeSection>::list() {
  using C = CodeSection;
  static const List<C> list{
      field<&C::git_revision>("git_revision", "", "last commit on the measuring machine; `-dirty`: its tree had uncommitted changes"),
      optional_field<&C::a_sources_sha256>("a_sources_sha256", "",
                                           "hash of the code of arm A's step, without comments; of whole files up to 2026-12-01; absent "
                                           "for a frozen baseline, which has a manifest"),
      optional_field<&C::b_sources_sha256>("b_sources_sha256", "", "the same of arm B's step"),
      optional_field<&C::a_revision>("a_revision", "", "commit that arm A was built from; absent: both arms are of `git_revision`"),
      optional_field<&C::patch_sha256>("patch_sha256", "", "hash of the patch with which arm B was built; absent: there was none"),
      optional_field<&C::earlier_revisions>(
          "earlier_revisions", "",
          "last commits of the commands before it whose rounds or answers count too; the sources of the step were "
          "the same"),
  };
  return list;
}

const List<DeviceSection>& FieldsOf<DeviceSection>::list() {
  using D = DeviceSection;
  static const List<D> list{
      field<&D::device>("device", "", "name"),
      optional_field<&D::driver>("driver", "", "version"),
  };
  return list;
}

const List<ThresholdsSection>& FieldsOf<ThresholdsSection>::list() {
  using T = ThresholdsSection;
  static const List<T> list{
      optional_field<&T::looks>("looks", "", "planned looks, in order"),
      field<&T::alpha>("alpha", "", "two-sided, of a claim in a campaign"),
      field<&T::minimum_effect_pct>("minimum_effect_pct", "%", "smaller effects are never claimed"),
      field<&T::equivalence_bound_pct>("equivalence_bound_pct", "%", "`same` means within ± this"),
      field<&T::power>("power", "", "chance with which the t test finds the minimum detectable effect"),
  };
  return list;
}

const List<LookSection>& FieldsOf<LookSection>::list() {
  using L = LookSection;
  static const List<L> list{
      field<&L::pairs>("pairs", "", "so many in all"),
      field<&L::alpha>("alpha", "", "two-sided level of a claim"),
      field<&L::equivalence_alpha>("equivalence_alpha", "", "one-sided level of `same`"),
      field<&L::sign_flip_alpha>("sign_flip_alpha", "", "level of the exact test that must agree; absent: `alpha`"),
  };
  return list;
}

const List<LedgerSection>& FieldsOf<LedgerSection>::list() {
  using L = LedgerSection;
  static const List<L> list{
      field<&L::trials>("trials", "", "comparisons of identical code on this device"),
      field<&L::false_claims>("false_claims", "", "so many of them were called different"),
      field<&L::bound_95_pct>("bound_95_pct", "%", "95% upper bound on their rate"),
      field<&L::sentence>("sentence", "", "the same in words"),
  };
  return list;
}

// ---- a workload
const List<WorkloadSection>& FieldsOf<WorkloadSection>::list() {
  using W = WorkloadSection;
  static const List<W> list{
      field<&W::workload>("workload", "", "`d12 B=4 T=1024`"),
      field<&W::model>("model", "", "preset"),
      field<&W::batch_size>("batch_size", "", "B; 0 for two commands"),
      field<&W::seq_len>("seq_len", "", "T; 0 for two commands"),
      field<&W::a_gpus>("a_gpus", "",
                        "GPUs of arm A, each with batch_size; absent with b_gpus: both have one. Clock, power, energy and heat are the "
                        "first GPU's alone"),
      field<&W::b_gpus>("b_gpus", "", "GPUs of arm B"),
      optional_field<&W::matmul>("matmul", "", "absent: the trainer's default"),
      field<&W::verdict>("verdict", "", "faster, slower, same, undecided or invalid; B against A"),
      field<&W::reason>("reason", "",
                        "`interval_excludes_zero`, `equivalent`, `same_code`, `given_back_as_clock`, `not_enough_evidence`, "
                        "`tests_disagree`, `too_few_pairs`, `interrupted`, `not_after_holm`, `gate_failed`, `arm_failed`, "
                        "`foreign_process` or `baseline_changed`"),
      field<&W::sentence>("sentence", "", "the same in words"),
      field<&W::procedure>("procedure", "",
                           "`alone`: `statistics` is the ratio of sustained step times; `in_turns`: the ratio at equal clocks, which is "
                           "what every verdict of schema 1 states"),
      field<&W::whole_programs>("whole_programs", "", "a block was a program from its start to its end: the time of a burst"),
      field<&W::statistics>("statistics", "", "what the pairs of that procedure say, before anything is corrected"),
      field<&W::equal_clocks>("equal_clocks", "", "beside a verdict alone: the ratio at equal clocks, which decides nothing"),
      optional_field<&W::equal_clocks_absent>("equal_clocks_absent", "", "why there is none"),
      field<&W::statistics_in_cycles>("statistics_in_cycles", "",
                                      "in turns: step time × mean SM clock; absent without clocks in the blocks"),
      field<&W::sustained>("sustained", "", "both arms alone: time, clock, power and energy"),
      optional_field<&W::self_checks>("self_checks", "", "the checks of the measurement on itself"),
      field<&W::a_step_ns>("a_step_ns", "ns", "alone: total time / steps; in turns: median over all blocks"),
      field<&W::b_step_ns>("b_step_ns", "ns", "the same of arm B"),
      field<&W::saved_ms>("saved_ms", "ms", "by the ratio of `statistics`; positive: B is faster"),
      field<&W::saved_ms_interval>("saved_ms_interval", "ms", "by its interval"),
      field<&W::predicted_saving_ms>("predicted_saving_ms", "ms", "by the experiment file"),
      field<&W::planted_pct>("planted_pct", "%", "slowdown added to B, to test the procedure"),
      field<&W::seed>("seed", "", "draws the order of starts and blocks"),
      field<&W::memory>("memory", "", "planned device memory of both arms"),
      field<&W::a>("a", "", "the baseline"),
      field<&W::b>("b", "", "the change"),
      field<&W::audit>("audit", "", "what both arms answered for; absent for commands"),
      field<&W::solo>("solo", "", "schema 1: one process of each arm alone, afterwards"),
      optional_field<&W::solo_absent>("solo_absent", "", "why there is none"),
      field<&W::same_code>("same_code", "", "whether both arms launched the same device code"),
      field<&W::waterfall>("waterfall", "", "from A's step to B's: device time of traced steps"),
      optional_field<&W::waterfall_absent>("waterfall_absent", "", "why there is none"),
      field<&W::environment>("environment", "", "the device over the blocks in turns"),
      optional_field<&W::runs>("runs", "", "every process that ran alone, in the order of measurement"),
      optional_field<&W::pairs>("pairs", "", "every pair that took turns, with its blocks"),
  };
  return list;
}

const List<Statistics>& FieldsOf<Statistics>::list() {
  using S = Statistics;
  static const List<S> list{
      field<&S::verdict>("verdict", "", "what these pairs say by themselves"),
      field<&S::reason>("reason", "", "code"),
      field<&S::sentence>("sentence", "", "the same in words"),
      field<&S::look>("look", "", "at which it was decided, from 1"),
      field<&S::alpha>("alpha", "", "two-sided level of that look"),
      field<&S::pairs>("pairs", "", "so many"),
      field<&S::ratio>("ratio", "", "B / A of step times: below 1, B is faster"),
      field<&S::log_ratio_mean>("log_ratio_mean", "", "its natural logarithm"),
      field<&S::log_ratio_sd>("log_ratio_sd", "", "standard deviation over pairs"),
      field<&S::ratio_interval>("ratio_interval", "", "at level 1 - alpha: valid whatever look ended the run"),
      field<&S::p_value>("p_value", "", "t test, two-sided"),
      field<&S::sign_flip_p_value>("sign_flip_p_value", "", "exact sign-flip test; only asked where the interval excludes 1"),
      field<&S::campaign_p_value>("campaign_p_value", "",
                                  "smallest p of the looks so far × planned looks, and at most `thresholds.alpha` where a look reached its "
                                  "level: Holm corrects this one"),
      field<&S::equivalence_p_value>("equivalence_p_value", "", "larger of the two one-sided tests"),
      field<&S::minimum_detectable_effect_pct>("minimum_detectable_effect_pct", "%",
                                               "the t test of so many pairs of this spread finds it 4 times in 5; with the exact test, "
                                               "which must agree, 7 pairs find it 3 times in 5"),
      field<&S::within_pair_error>("within_pair_error", "", "error of the log ratio, pooled over pairs"),
      field<&S::process_modes>("process_modes", "", "pairs spread much more than their own errors"),
  };
  return list;
}

const List<RatioSection>& FieldsOf<RatioSection>::list() {
  using R = RatioSection;
  static const List<R> list{
      field<&R::ratio>("ratio", "", "B / A"),
      field<&R::ratio_interval>("ratio_interval", "", "at the level of the verdict's"),
      field<&R::log_ratio_sd>("log_ratio_sd", "", "standard deviation over pairs"),
      field<&R::pairs>("pairs", "", "so many"),
  };
  return list;
}

const List<EqualClocksSection>& FieldsOf<EqualClocksSection>::list() {
  using E = EqualClocksSection;
  static const List<E> list{
      field<&E::by>("by", "", "`turns`: resident pairs in short blocks; `full_clock`: steps 2 to 5 of fresh processes"),
      field<&E::ratio>("ratio", "", "step times at one clock, B / A"),
      field<&E::sm_clock_mhz>("sm_clock_mhz", "MHz", "at which it was measured, where that is known"),
  };
  return list;
}

const List<SustainedSection>& FieldsOf<SustainedSection>::list() {
  using S = SustainedSection;
  static const List<S> list{
      field<&S::a>("a", "", "the baseline over all its processes"),
      field<&S::b>("b", "", "the change over all its processes"),
      field<&S::joules_per_step>("joules_per_step", "", "ratio of energies"),
      field<&S::sm_clock>("sm_clock", "", "ratio of mean clocks"),
      field<&S::power>("power", "", "ratio of mean power"),
      field<&S::settle_s>("settle_s", "s", "begin of each process, not counted; one figure for all of them"),
      field<&S::measure_s>("measure_s", "s", "counted part of each process"),
      optional_field<&S::settle_rule>("settle_rule", "", "how settle_s was found"),
      field<&S::seconds_alone>("seconds_alone", "s", "all of it: starts, rests and heating included"),
      field<&S::commands>("commands", "", "that measured it, each going on where the one before was stopped; absent: one"),
      field<&S::max_sm_clock_mhz>("max_sm_clock_mhz", "MHz", "what the device may reach"),
      field<&S::power_limit_w>("power_limit_w", "W", "that the device enforces"),
      optional_field<&S::shared_with>("shared_with", "",
                                      "experiments of the same command that the processes of arm A also served: their errors are common"),
  };
  return list;
}

const List<SustainedArm>& FieldsOf<SustainedArm>::list() {
  using A = SustainedArm;
  static const List<A> list{
      field<&A::step_ns>("step_ns", "ns", "total time of the counted steps / their number"),
      field<&A::steps>("steps", "", "counted"),
      field<&A::processes>("processes", "", "fresh ones"),
      field<&A::sm_clock_mhz>("sm_clock_mhz", "MHz", "mean over its processes"),
      field<&A::power_w>("power_w", "W", "mean over its processes"),
      field<&A::joules_per_step>("joules_per_step", "J", "by the energy counter; absolute accuracy ±5%"),
      field<&A::temperature_c>("temperature_c", "°C", "highest"),
      field<&A::full_clock_ns>("full_clock_ns", "ns", "mean of steps 2 to 5, before a limiter acts"),
      field<&A::clock_limited>("clock_limited", "", "at least 97% of the power limit, and a clock 30 MHz or more below the maximum"),
      field<&A::cap_cost_pct>(
          "cap_cost_pct", "%",
          "part of the sustained step that it has over full_clock_ns; absent where power, clock or their limits are not known"),
      field<&A::burst>("burst", "", "a process settled or was counted for less than a sustained one needs"),
  };
  return list;
}

const List<SelfCheckResult>& FieldsOf<SelfCheckResult>::list() {
  using C = SelfCheckResult;
  static const List<C> list{
      field<&C::check>("check", "", "settled, cycle, order, power, host, stalls, burst, energy or pieces"),
      field<&C::notice>("notice", "", "something to know before believing the verdict, which it does not change"),
      field<&C::value>("value", "", "in the unit of the sentence, mostly percent"),
      field<&C::limit>("limit", "", "above it, a notice"),
      field<&C::p_value>("p_value", "", "where a test is part of the check"),
      field<&C::sentence>("sentence", "", "with its figures and advice"),
  };
  return list;
}

// ---- the arms
const List<ArmReport>& FieldsOf<ArmReport>::list() {
  using A = ArmReport;
  static const List<A> list{
      field<&A::command>("command", "", "the arm's process"),
      optional_field<&A::trainer>("trainer", "", "absent for a command of the user"),
      optional_field<&A::program_sha256>("program_sha256", "", "hash of the program file"),
      field<&A::bucket_mib>("bucket_mib", "MiB",
                            "gradients that its ranks exchange at a time, as its flags say or `train` chooses for GPUs that reach each "
                            "other's memory; absent for "
                            "one GPU, and before that choice was: 25 without a flag"),
      field<&A::gate>("gate", "", "whether it computes the right thing"),
      field<&A::launches>("launches", "", "timed steps against checked ones"),
      optional_field<&A::launches_absent>("launches_absent", "", "why they were not compared"),
      optional_field<&A::said>("said", "", "what the arm said it is, in its own fields"),
  };
  return list;
}

const List<GateSummary>& FieldsOf<GateSummary>::list() {
  using G = GateSummary;
  static const List<G> list{
      field<&G::checked>("checked", "", "false: nothing judged it; only a command of the user may be so"),
      field<&G::passed>("passed", "", "false: it was not timed"),
      field<&G::sentence>("sentence", "", "the same in words"),
      optional_field<&G::failures>("failures", "", "one line each"),
      optional_field<&G::checked_by>("checked_by", "", "the command before this one that asked the gate: its revision and its time"),
  };
  return list;
}

const List<SameLaunches>& FieldsOf<SameLaunches>::list() {
  using L = SameLaunches;
  static const List<L> list{
      field<&L::same>("same", "", "timed steps launch the same operations as checked ones"),
      field<&L::sentence>("sentence", "", "the same in words, or the first difference"),
      field<&L::operations>("operations", "", "kernels, copies and memsets of a step"),
      field<&L::timed_steps>("timed_steps", "", "traced"),
      field<&L::checked_steps>("checked_steps", "", "traced"),
  };
  return list;
}

const List<MemorySection>& FieldsOf<MemorySection>::list() {
  using M = MemorySection;
  static const List<M> list{
      field<&M::a_bytes>("a_bytes", "bytes", "arm A"),
      field<&M::b_bytes>("b_bytes", "bytes", "arm B"),
      field<&M::delta_bytes>("delta_bytes", "bytes", "B - A"),
  };
  return list;
}

const List<AuditSection>& FieldsOf<AuditSection>::list() {
  using A = AuditSection;
  static const List<A> list{
      field<&A::steps_again_checks>("steps_again_checks", "", "passed by each arm when a fresh trainer took its steps again"),
      field<&A::worst>("worst", "", "the worst pair of every measure of every arm"),
  };
  return list;
}

const List<AuditRow>& FieldsOf<AuditRow>::list() {
  using A = AuditRow;
  static const List<A> list{
      field<&A::arm>("arm", "", "which"),       field<&A::check>("check", "", "clock, late work, launch errors"),
      field<&A::what>("what", "", "in words"),  field<&A::value>("value", "", "found"),
      field<&A::limit>("limit", "", "allowed"),
  };
  return list;
}

const List<SoloSection>& FieldsOf<SoloSection>::list() {
  using S = SoloSection;
  static const List<S> list{
      field<&S::a_step_ns>("a_step_ns", "ns", "median of one process"),
      field<&S::b_step_ns>("b_step_ns", "ns", "median of one process"),
      field<&S::seconds>("seconds", "s", "length of each"),
  };
  return list;
}

const List<SameCode>& FieldsOf<SameCode>::list() {
  using S = SameCode;
  static const List<S> list{
      field<&S::same>("same", "", "one program file and equal launches"),
      field<&S::why>("why", "", "the first difference, or what they have in common"),
  };
  return list;
}

std::string verdict_schema_markdown() {
  Sections sections;
  describe_row<VerdictDocument>("", sections);
  std::string out =
      "# The verdict document\n\n"
      "Generated from the field list in `experiments/verdict/fields.cpp` and `fields_measured.cpp`; a test fails when this page is stale. "
      "`docs/experiments.md` says "
      "how to read a verdict,\n"
      "`docs/experiment-procedure.md` how it is measured.\n\n"
      "One JSON object. A field that is not marked *always* is absent when there is no answer, never null or zero. `content_sha256`, the "
      "last field, is the\n"
      "SHA-256 of the compact JSON of all others: `stepscope experiment check` refuses a file that was edited by hand.\n";
  std::map<std::string, std::string> told;  // a struct that stands in several places is listed where it stands first
  for (const SectionText& s : sections) {
    std::string table;
    for (const FieldText& f : s.fields)
      table += fmt::format("| `{}` | {} | {} | {} | {} |\n", f.name, f.type, f.unit, f.required ? "yes" : "", f.help);
    out += fmt::format("\n## {}\n\n", s.path.empty() ? "The document" : "`" + s.path + "`");
    const auto [first, is_new] = told.emplace(table, s.path);
    out += is_new ? "| field | type | unit | always | meaning |\n|---|---|---|---|---|\n" + table
                  : fmt::format("The same fields as `{}`.\n", first->second);
  }
  return out;
}

}  // namespace experiments
