// `stepscope diff A B`: two profile documents, what changed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/json_text.h"
#include "base/named_files.h"
#include "base/output_file.h"
#include "cli/choose.h"
#include "cli/commands.h"
#include "cli/report_output.h"
#include "cli/say.h"
#include "cli/values.h"
#include "profiler/diff/diff.h"
#include "profiler/document/json.h"
#include "profiler/report/table.h"

namespace cli {
namespace {

using stepscope::InputError;

struct DiffFlags {
  std::string a, b, by = "kernel";
  int64_t top = 12;
  double fail_if_slower = -1;
  bool json = false;
  std::vector<std::string> outputs;
  const Argument *by_flag = nullptr, *top_flag = nullptr;
};

profiler::DiffBy diff_by(const std::string& word) {
  using profiler::DiffBy;
  static constexpr std::array<std::pair<std::string_view, DiffBy>, 4> kWords{
      {{"pass", DiffBy::pass}, {"op", DiffBy::op}, {"kernel", DiffBy::kernel}, {"layer", DiffBy::layer}}};
  return choose(kWords, word, "--by");
}

profiler::Judged judged_step(const profiler::ProfileDiff& diff) {
  try {
    return diff.judged();
  } catch (const InputError& e) {
    throw InputError(fmt::format("--fail-if-slower: {}", e.what()));
  }
}

void run(const DiffFlags& f, int& exit_code) {
  profiler::DiffText text;
  text.by = diff_by(f.by);
  text.top = static_cast<size_t>(f.top);
  text.a_name = f.a;
  text.b_name = f.b;
  if (text.by == profiler::DiffBy::pass) only_these({f.top_flag}, {}, "--by pass shows no second table; leave one of the two out");
  const bool tables = !f.json || std::ranges::any_of(f.outputs, [](const std::string& path) { return path.ends_with(".md"); });
  if (!tables) only_these({f.by_flag, f.top_flag}, {}, kNoTable);
  for (const std::string& path : f.outputs) {
    if (!path.ends_with(".md") && !path.ends_with(".json"))
      throw InputError(fmt::format("-o/--out '{}': expected a name that ends in .md or .json", path));
    stepscope::check_output(path, "-o/--out");
  }
  stepscope::NamedFiles outputs;
  for (const std::string& path : f.outputs) outputs.emplace_back("-o/--out", path);
  stepscope::check_files_differ({{"the document to read", f.a}, {"the document to read", f.b}}, outputs);
  const profiler::ProfileDocument a = profiler::load_profile(f.a), b = profiler::load_profile(f.b);
  const profiler::ProfileDiff diff = profiler::diff_profiles(a, b);
  WrittenFiles files;
  for (const std::string& path : f.outputs)
    path.ends_with(".md") ? files.write("report", path, profiler::diff_markdown(diff, text))
                          : files.write("document", path, stepscope::json_text(profiler::diff_json(diff, text), 1) + "\n");
  if (f.json) {
    fmt::print("{}\n", stepscope::json_text(profiler::diff_json(diff, text), 1));
  } else {
    text.color = profiler::color_wanted(STDOUT_FILENO);
    text.width = profiler::table_width(STDOUT_FILENO);
    fmt::print("{}", profiler::diff_table(diff, text));
  }
  if (f.fail_if_slower < 0) return;
  if (diff.unlike()) throw InputError("--fail-if-slower: the two runs cannot be compared (see 'not the same')");
  if (const profiler::Doubt* severe = diff.severe())
    throw InputError(fmt::format("--fail-if-slower: {} holds a severe {}, expected documents that are whole", severe->of, severe->name));
  const bool a_steps = a.timing.step_time_ns.median.has_value(), b_steps = b.timing.step_time_ns.median.has_value();
  if (a_steps != b_steps)
    throw InputError(fmt::format("--fail-if-slower: only {} has timed steps, so no step can be compared", a_steps ? "A" : "B"));
  const profiler::Judged judged = judged_step(diff);
  const double slower_pct = (judged.ratio - 1) * 100;
  constexpr double kRounding_pct = 1e-9;
  // NaN must not pass.
  if (!(slower_pct <= f.fail_if_slower + kRounding_pct)) {
    say(fmt::format("B's {} is {:.2f}% slower than A's; allowed is {}%", judged.quantity, slower_pct, f.fail_if_slower));
    exit_code = 1;
  }
}

}  // namespace

void add_diff_command(Command& app, int& exit_code) {
  auto f = std::make_shared<DiffFlags>();
  Command* c = app.add_subcommand("diff", "Show what changed between two profile documents, by pass and kernel");
  c->add_option("a", f->a, "a profile document")->required();
  c->add_option("b", f->b, "another one")->required();
  f->by_flag = c->add_option("--by", f->by, "rows of the second table: pass (none), op, kernel or layer")->capture_default_str();
  f->top_flag = c->add_option("--top", f->top, "show at most this many rows of the second table")->check(whole(1))->capture_default_str();
  c->add_option("--fail-if-slower", f->fail_if_slower,
                "exit 1 if B's step is slower by more than this many percent; cool steps are judged with cool ones, warm with warm")
      ->check(real(0, 1e6));
  c->add_flag("--json", f->json, "print the diff with all its rows as JSON (stepscope.diff/1)");
  c->add_option("-o,--out", f->outputs, "write the diff to FILE.md (for a pull request) or FILE.json as well (repeatable)");
  c->footer(
      "Examples:\n"
      "  stepscope diff before.json after.json\n"
      "  stepscope diff before.json after.json --by op --fail-if-slower 1 -o diff.md\n"
      "Two single runs are no verdict: `stepscope experiment run` is.");
  c->callback([f, &exit_code] { run(*f, exit_code); });
}

}  // namespace cli
