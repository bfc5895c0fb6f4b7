#include "profiler/report/views.h"

#include <fmt/format.h>

#include <algorithm>

#include "profiler/report/cells.h"
#include "profiler/report/names.h"
#include "profiler/report/rank_views.h"
#include "profiler/report/view_rows.h"

namespace profiler {
namespace {

// A row that is no pass: it has the numbers that are known for it and blanks for the others.
void blank_unknown(ViewRow& row) {
  for (ViewCell& cell : row.cells)
    if (cell.text == "-") cell.text.clear();
}

// Without a work model (another tool's report, a foreign program) only the kernels' own floors are known; the two never mix.
bool floors_of_kernels(const ProfileDocument& d) { return !d.totals.headroom_ns; }

template <class Row>
std::vector<const Row*> by_time(const std::vector<Row>& rows) {
  std::vector<const Row*> list;
  for (const Row& r : rows) list.push_back(&r);
  std::stable_sort(list.begin(), list.end(), [](const Row* a, const Row* b) { return a->time_ns > b->time_ns; });
  return list;
}

// The rows to show; what the others have together becomes a note. The page shows all of them and sorts by itself.
template <class Row>
std::vector<const Row*> first_rows(View& view, const std::vector<Row>& rows, Output output, size_t top, const char* plural) {
  std::vector<const Row*> list;
  if (output == Output::page) {
    for (const Row& r : rows) list.push_back(&r);
    return list;
  }
  list = by_time(rows);
  if (list.size() <= top) return list;
  double rest = 0;
  for (size_t i = top; i < list.size(); ++i) rest += list[i]->time_ns;
  view.notes.push_back(fmt::format("{} more {}: {} ms", list.size() - top, plural, milliseconds(rest)));
  list.resize(top);
  return list;
}

ViewCell kernel_name_cell(const std::string& name, Output output) {
  const std::string text = short_kernel_name(name);
  return {output == Output::markdown ? elide(text, 60) : text, {}, name};
}

template <class Row>
std::string where(const Row& row) {
  return row.pass ? place_words(*row.pass, row.op.value_or("")) : "-";
}

template <class Row>
bool any_has(const std::vector<Row>& rows, const Field<Row>& f) {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
    const auto* text = std::get_if<Text Row::*>(&f.member);
    return text ? (row.*(*text)).has_value() : number_of(f, row).has_value();
  });
}

template <class Row, class Name>
View floored_view(const ProfileDocument& d, const std::vector<Row>& rows, const char* what, const char* plural, Output output, size_t top,
                  Name name) {
  View view;
  view.columns.push_back({what, true, true, 0, ""});
  auto fields = columns_of<Row>(kGroupTable, output, floors_of_kernels(d));
  std::erase_if(fields, [&](const Field<Row>* f) { return f->shown.only_if_known && !any_has(rows, *f); });
  add_columns(view, fields);
  for (const Row* r : first_rows(view, rows, output, top, plural)) {
    ViewRow row{{{name(*r), {}, {}}}};
    add_cells(row, fields, *r);
    view.rows.push_back(std::move(row));
  }
  return view;
}

// Steps of another program have no passes: its longest kernels stand in their place.
std::vector<PassRow> kernels_as_passes(const ProfileDocument& d) {
  constexpr size_t kMost = 8;
  std::vector<PassRow> rows;
  PassRow others;
  size_t count = 0;
  for (const KernelRow* k : by_time(d.kernels)) {
    if (rows.size() >= kMost) {
      ++count;
      others.launches += k->launches;
      others.copies += k->copies;
      others.time_ns += k->time_ns;
      continue;
    }
    PassRow& row = rows.emplace_back();
    static_cast<Measured&>(row) = *k;
    row.name = short_kernel_name(k->name);
    row.kernel_headroom_ns = k->headroom_ns;
  }
  if (count) {
    others.name = fmt::format("{} more kernels", count);
    others.share_pct = share(d, others.time_ns).value_or(0);
    rows.push_back(others);
  }
  return rows;
}

std::string without_floor_words(const TotalsSection& t) {
  const int64_t n = t.launches_without_floor.value_or(0);
  return fmt::format("{} of {} ms {} no floor, as {} tensor work is unknown", n == 1 ? "1 launch" : fmt::format("{} launches", n),
                     milliseconds(t.without_floor_ns), n == 1 ? "has" : "have", n == 1 ? "its" : "their");
}

// What passes do not have, and the sum. `all_attributed`: the rows above hold what is unattributed too.
void add_rest(View& view, const Fields<PassRow>& fields, const ProfileDocument& d, bool all_attributed) {
  const TotalsSection& t = d.totals;
  const auto add = [&](const char* name, const PassRow& p, ViewRow::Kind kind, bool blanks) {
    ViewRow row{{{name, {}, {}}}, kind};
    add_cells(row, fields, p);
    row.cells.resize(row.cells.size() + rank_pass_columns(d).size());
    if (blanks) {
      blank_unknown(row);
      for (size_t i = 0; i < fields.size(); ++i)
        if (fields[i]->shown.format == Format::launches && p.launches + p.copies == 0) row.cells[i + 1] = {};
    }
    row.cells.push_back({});
    view.rows.push_back(std::move(row));
  };
  if (const auto u = unattributed_row(d); u && !all_attributed)
    add("unattributed", *u, u->time_ns > 0 && !d.passes.empty() ? ViewRow::Kind::warning : ViewRow::Kind::faint, true);
  PassRow p;
  p.time_ns = t.idle_ns.value_or(0);
  p.share_pct = share(d, t.idle_ns).value_or(0);
  p.headroom_ns = p.kernel_headroom_ns = t.idle_ns;
  if (t.idle_ns) add("idle", p, ViewRow::Kind::plain, true);
  if (!t.passes_ns || !t.unattributed_ns || (!t.idle_ns && !measured_alone(d))) return;
  const bool of_kernels = floors_of_kernels(d);
  const Number headroom = of_kernels ? t.kernel_headroom_ns : t.headroom_ns;
  p = PassRow();
  static_cast<Numbers&>(p) = t;
  p.launches = t.launches.value_or(0);
  p.copies = t.copies.value_or(0);
  p.time_ns = *t.passes_ns + *t.unattributed_ns + t.idle_ns.value_or(0);
  p.share_pct = share(d, p.time_ns).value_or(0);
  if (headroom) p.headroom_ns = p.kernel_headroom_ns = *headroom + t.idle_ns.value_or(0);
  add("sum", p, ViewRow::Kind::sum, false);
  if (of_kernels && headroom)
    view.notes.push_back("Headroom here is above the time that each kernel's own traffic and work need" +
                         (t.launches_without_floor ? "; " + without_floor_words(t) : "") + ".");
  if (!measured_alone(d))
    view.notes.push_back(fmt::format("Rows sum to {} of {} ms ({:+.2f}%).", milliseconds(p.time_ns), milliseconds(t.time_ns),
                                     t.conservation_error_pct.value_or(0)));
}

}  // namespace

Number share(const ProfileDocument& d, Number ns) {
  const double step = d.totals.time_ns.value_or(0);
  return ns && step > 0 ? Number(*ns / step * 100) : std::nullopt;
}

std::optional<PassRow> unattributed_row(const ProfileDocument& d) {
  const TotalsSection& t = d.totals;
  if (!t.unattributed_ns) return std::nullopt;
  PassRow row;
  row.name = "unattributed";
  row.time_ns = *t.unattributed_ns;
  row.share_pct = share(d, row.time_ns).value_or(0);
  row.launches = t.launches.value_or(0);
  row.copies = t.copies.value_or(0);
  for (const PassRow& p : d.passes) {
    row.launches -= p.launches;
    row.copies -= p.copies;
  }
  double kernels_ns = 0;
  Number of_ceiling_ns = 0;  // each kernel's own share, which counts by its time
  bool any = false;
  for (const KernelRow& k : d.kernels) {
    if (k.pass) continue;
    row.duration_ns += k.duration_ns;
    if (k.launches == 0) continue;  // copies, which have no counters
    kernels_ns += k.duration_ns;
    of_ceiling_ns = sum_of(of_ceiling_ns, k.dram_of_ceiling_pct ? Number(*k.dram_of_ceiling_pct * k.duration_ns) : std::nullopt);
    row.dram_read_bytes = any ? sum_of(row.dram_read_bytes, k.dram_read_bytes) : k.dram_read_bytes;
    row.dram_write_bytes = any ? sum_of(row.dram_write_bytes, k.dram_write_bytes) : k.dram_write_bytes;
    row.kernel_headroom_ns = any ? sum_of(row.kernel_headroom_ns, k.headroom_ns) : k.headroom_ns;
    any = true;
  }
  if (row.duration_ns == 0) row.duration_ns = row.time_ns;  // a record that was cut has no rows of it
  if (const Number bytes = sum_of(row.dram_read_bytes, row.dram_write_bytes); bytes && kernels_ns > 0)
    row.dram_bytes_per_s = *bytes / (kernels_ns * 1e-9);
  if (of_ceiling_ns && kernels_ns > 0) row.dram_of_ceiling_pct = *of_ceiling_ns / kernels_ns;
  if (floors_of_kernels(d)) row.headroom_ns = row.kernel_headroom_ns;
  return row;
}

bool measured_alone(const ProfileDocument& d) { return d.collection.producer == "ncu"; }

View pass_view(const ProfileDocument& d, Output output) {
  View view;
  const auto fields = columns_of<PassRow>(kPassTable, output, floors_of_kernels(d));
  const bool of_kernels = d.passes.empty() && d.collection.shown_step && !d.kernels.empty();
  view.columns.push_back({of_kernels ? "kernel" : "pass", true, false, 0, ""});
  add_columns(view, fields);
  const std::vector<ViewColumn> of_ranks = rank_pass_columns(d);
  view.columns.insert(view.columns.end(), of_ranks.begin(), of_ranks.end());
  view.columns.push_back({"top kernel", true, true, 9, ""});
  for (const PassRow& p : of_kernels ? kernels_as_passes(d) : d.passes) {
    ViewRow row{{{p.name, {}, {}}}};
    add_cells(row, fields, p);
    const std::vector<ViewCell> of_all = rank_pass_cells(d, p.name);
    row.cells.insert(row.cells.end(), of_all.begin(), of_all.end());
    row.cells.push_back({of_kernels ? "" : "-", {}, {}});
    if (p.top_kernel)
      row.cells.back() = {milliseconds(p.top_kernel_ns) + " " + kernel_name_cell(*p.top_kernel, output).text, {}, *p.top_kernel};
    view.rows.push_back(std::move(row));
  }
  add_rest(view, fields, d, of_kernels);
  return view;
}

View kernel_view(const ProfileDocument& d, Output output, size_t top) {
  View view;
  // Where kernels have no passes they have a share of the step in that column's place.
  const bool places = !d.passes.empty() || !d.totals.time_ns || output == Output::page;
  auto fields = columns_of<KernelRow>(kKernelTable, places ? output : Output::page, true);
  if (!places) std::erase_if(fields, [](const auto* f) { return f->name != "share_pct" && !(f->shown.tables & kKernelTable); });
  view.columns.push_back({"kernel", true, true, 0, ""});
  if (places) view.columns.push_back({"where", true, false, 0, ""});
  add_columns(view, fields);
  for (const KernelRow* k : first_rows(view, d.kernels, output, top, "kernels")) {
    ViewRow row{{kernel_name_cell(k->name, output)}};
    if (places) row.cells.push_back({where(*k), {}, {}});
    add_cells(row, fields, *k);
    view.rows.push_back(std::move(row));
  }
  // A record that was cut keeps the longest kernels only; a reader who adds the rows up would miss time. What medians of several steps do not
  // add up to is no kernel's: the line below the passes says it.
  if (d.totals.time_ns && d.totals.passes_ns && d.totals.unattributed_ns && !measured_alone(d)) {
    double rest = *d.totals.passes_ns + *d.totals.unattributed_ns;
    for (const KernelRow& k : d.kernels) rest -= k.time_ns;
    if (rest > 0.001 * *d.totals.time_ns)
      view.notes.push_back(fmt::format("Kernels that this record does not hold: {} ms.", milliseconds(rest)));
  }
  if (d.totals.launches_without_floor && d.passes.empty()) view.notes.push_back(without_floor_words(d.totals) + ".");
  return view;
}

View op_view(const ProfileDocument& d, Output output, size_t top) {
  return floored_view(d, d.ops, "op", "ops", output, top, [](const OpRow& r) { return place_words(r.pass, r.op); });
}

View layer_view(const ProfileDocument& d, Output output, size_t top) {
  View view = floored_view(d, d.layers, "layer", "layers", output, top,
                           [](const LayerRow& r) { return fmt::format("{} layer {}", place_words(r.pass, ""), r.layer); });
  // So that a reader who adds the rows up knows where the rest of the step is.
  if (!d.totals.passes_ns || !d.totals.unattributed_ns) return view;
  double outside = *d.totals.passes_ns + *d.totals.unattributed_ns;
  for (const LayerRow& r : d.layers) outside -= r.time_ns;
  std::string note = fmt::format("Outside the layers: {} ms", milliseconds(outside));
  if (d.totals.idle_ns) note += fmt::format(", idle {} ms", milliseconds(d.totals.idle_ns));
  view.notes.push_back(note + ".");
  return view;
}

View launch_view(const ProfileDocument& d) {
  View view;
  const auto fields = columns_of<LaunchRow>(kLaunchTable, Output::page, true);
  view.columns = {{"kernel", true, true, 0, ""}, {"where", true, false, 0, ""}};
  add_columns(view, fields);
  for (const LaunchRow& l : d.launches) {
    ViewRow row{{kernel_name_cell(l.name, Output::page), {where(l), {}, {}}}};
    add_cells(row, fields, l);
    view.rows.push_back(std::move(row));
  }
  return view;
}

View state_view(const ProfileDocument& d, Output output) {
  View view;
  const auto fields = columns_of<StateRow>(kStateTable, output, true);
  add_columns(view, fields);
  const std::vector<StateRow>& states = d.timing.states;
  if (states.empty() || (states.size() == 1 && !states.front().joules_per_step)) return view;
  for (const StateRow& s : states) {
    ViewRow row;
    add_cells(row, fields, s);
    view.rows.push_back(std::move(row));
  }
  return view;
}

View step_view(const ProfileDocument& d) {
  View view;
  view.columns = {{"step", false, false, 0, ""}, {"ms", false, false, 0, ""}};
  const int64_t first = d.run.first_timed_step.value_or(0) + 1;
  for (size_t i = 0; i < d.timing.step_time_ns.samples.size(); ++i) {
    const int64_t step = first + static_cast<int64_t>(i);
    const double ns = d.timing.step_time_ns.samples[i];
    view.rows.push_back({{{std::to_string(step), static_cast<double>(step), {}}, {milliseconds(ns), ns, {}}}});
  }
  return view;
}

}  // namespace profiler
