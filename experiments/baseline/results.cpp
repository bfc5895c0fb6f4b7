// RESULTS.json of a frozen baseline.
#include "experiments/baseline/results.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/json_read.h"
#include "base/read_file.h"

namespace experiments {

std::optional<std::vector<BaselineResult>> read_results(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kResultsFile;
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto refuse = [&](const std::string& text) { return stepscope::InputError(path.string() + ": " + text); };
  const std::string content = stepscope::read_file(path);
  const auto j = stepscope::read_json<nlohmann::json>(content);
  if (!j.is_object()) throw refuse(stepscope::why_no_object(content, path.string()));
  if (!j.contains("schema") || j["schema"] != kResultsSchema) {
    throw refuse(fmt::format("no schema \"{}\"", kResultsSchema));
  }
  if (!j.contains("results") || !j["results"].is_array() || j["results"].empty()) {
    throw refuse("field \"results\" is missing, empty or no list");
  }
  std::vector<BaselineResult> results;
  for (const auto& item : j["results"]) {
    const auto where = fmt::format("results[{}]", results.size());
    const auto text = [&](const char* field) {
      if (!item.is_object() || !item.contains(field) || !item[field].is_string() || item[field].get_ref<const std::string&>().empty()) {
        throw refuse(fmt::format("{}.{} is missing, empty or no text", where, field));
      }
      return item[field].get<std::string>();
    };
    const auto positive = [&](const char* field) {
      if (!item.is_object() || !item.contains(field) || !item[field].is_number() || !(item[field].get<double>() > 0)) {
        throw refuse(fmt::format("{}.{} is missing or no number above 0", where, field));
      }
      return item[field].get<double>();
    };
    const auto count = [&](const char* field) {
      positive(field);
      if (!item[field].is_number_integer()) throw refuse(fmt::format("{}.{} is no whole number", where, field));
      return item[field].get<int64_t>();
    };
    BaselineResult r;
    r.date = text("date"), r.device = text("device"), r.driver = text("driver"), r.cuda = text("cuda");
    r.command = text("command"), r.matmul = text("matmul");
    if (item.contains("note")) r.note = text("note");
    r.batch_size = count("batch_size"), r.seq_len = count("seq_len"), r.steps = count("steps");
    r.step_time_ns = positive("step_time_ns"), r.tokens_per_s = positive("tokens_per_s");
    const double expected = static_cast<double>(r.batch_size) * static_cast<double>(r.seq_len) / r.step_time_ns * 1e9;
    if (!(std::abs(r.tokens_per_s - expected) <= 0.01 * expected)) {
      throw refuse(fmt::format("{}: {:.0f} tokens/s do not belong to {:.0f} ns for {} x {} tokens", where, r.tokens_per_s, r.step_time_ns,
                               r.batch_size, r.seq_len));
    }
    results.push_back(std::move(r));
  }
  return results;
}

}  // namespace experiments
