#include "profiler/report/rank_views.h"

#include <algorithm>
#include <set>

#include "profiler/report/view_rows.h"

namespace profiler {
namespace {

// Columns whose answer no row has would be columns of dashes.
template <class Row>
void drop_unknown(Fields<Row>& fields, const std::vector<Row>& rows) {
  std::erase_if(fields, [&](const Field<Row>* f) {
    return std::none_of(rows.begin(), rows.end(), [&](const Row& row) {
      const auto* text = std::get_if<Text Row::*>(&f->member);
      return std::holds_alternative<std::string Row::*>(f->member) || (text ? (row.*(*text)).has_value() : number_of(*f, row).has_value());
    });
  });
}

std::string micros(double ns) { return fmt::format("{:.0f} us", ns / 1000); }

Fields<RankRow> rank_columns(const ProfileDocument& d) {
  auto fields = columns_of<RankRow>(kRankTable, Output::terminal, false);
  drop_unknown(fields, d.ranks);
  return fields;
}

std::string how_many(const ProfileDocument& d) {
  std::set<std::string> hosts;
  for (const RankRow& r : d.ranks) hosts.insert(r.host.value_or(""));
  const WorldSection& w = d.world;
  std::string text = fmt::format("{} ranks", w.size.value_or(0));
  if (w.ranks != w.size) text += fmt::format(", {} of them here", w.ranks.value_or(0));
  text += hosts.size() == 1 ? " on one host" : fmt::format(" on {} hosts", hosts.size());
  text += fmt::format("; passes and kernels are those of rank {}, the median one", w.main_rank.value_or(0));
  // A trainer of ours times its steps in run.json, which is rank 0's.
  text += w.main_rank.value_or(0) != 0 && d.run.trainer ? ", the step times above of rank 0." : ".";
  // What was recorded of operations on the device, or computed from that, is of the traced step. A column that no rank fills is not there.
  std::string_view last = "device";
  for (const Field<RankRow>* f : rank_columns(d))
    if (f->source == "activity" || f->source == "formula") last = f->shown.title;
  return text + fmt::format(" In the table of ranks device to {} are of one traced step, the others of the timed steps.", last);
}

std::string communication(const WorldSection& w) {
  if (!w.communication_ns) return "";
  const double all = *w.communication_ns, hidden = w.hidden_ns.value_or(0);
  std::string text = fmt::format("Communication {} ms per step: {} ms exposed", milliseconds(all), milliseconds(w.exposed_ns));
  if (const std::string parts = exposed_parts(w.exposed_ns, w.exposed_wait_ns, w.exposed_transfer_ns, w.exposed_drain_ns); !parts.empty())
    text += " (" + parts + ")";
  if (all > 0) text += fmt::format(", {} ms hidden beside other work ({:.0f}%)", milliseconds(hidden), hidden / all * 100);
  text += ".";
  if (w.bytes) text += fmt::format(" {} MB", text_of(Format::megabytes, w.bytes));
  if (w.bytes && w.bus_bytes_per_s) {
    text += fmt::format(" at {} GB/s while transferring", text_of(Format::gigabytes_per_s, w.bus_bytes_per_s));
    if (w.of_link_ceiling_pct) text += fmt::format(", {:.0f}% of what these links do alone", *w.of_link_ceiling_pct);
  }
  return text + (w.bytes ? "." : "");
}

std::string slowest(const WorldSection& w) {
  if (!w.slowest_rank) return "";
  std::string text = fmt::format("Slowest: rank {}, up to {} late", *w.slowest_rank, micros(w.slowest_late_ns.value_or(0)));
  if (!w.slowest_why) return text + "; no reason was found.";
  static const std::vector<std::pair<std::string, std::string>> kWords = {{"clock", "its SM clock is lower"},
                                                                          {"power", "its SM clock is lower at the power limit"},
                                                                          {"host", "its device had nothing to do: the host launched late"},
                                                                          {"data", "its host spends longer between steps: loading data"},
                                                                          {"work", "its kernels took longer"}};
  for (const auto& [why, words] : kWords)
    if (*w.slowest_why == why) return text + ", because " + words + ".";
  return text + fmt::format(", because {} took longer there.", *w.slowest_why);
}

std::string clocks(const WorldSection& w) {
  if (!w.clock_uncertainty_ns) return "";
  return fmt::format("Times of two ranks are comparable within {} ({}).", micros(*w.clock_uncertainty_ns),
                     w.clock == "shared" ? "one clock" : "clocks aligned by the collectives");
}

}  // namespace

std::string exposed_parts(const Number& exposed_ns, const Number& wait_ns, const Number& transfer_ns, const Number& drain_ns) {
  if (!exposed_ns || !wait_ns || !transfer_ns || !drain_ns) return "";
  std::string text = fmt::format("waiting {} ms, transfer {} ms, draining {} ms", milliseconds(wait_ns), milliseconds(transfer_ns),
                                 milliseconds(drain_ns));
  const double rest = *exposed_ns - *wait_ns - *transfer_ns - *drain_ns;
  if (rest > 0.01 * *exposed_ns) text += fmt::format(", outside of collectives {} ms", milliseconds(rest));
  return text;
}

View rank_view(const ProfileDocument& d) {
  View view;
  const auto fields = rank_columns(d);
  add_columns(view, fields);
  for (const RankRow& r : d.ranks) {
    ViewRow row;
    add_cells(row, fields, r);
    view.rows.push_back(std::move(row));
  }
  return view;
}

View collective_view(const ProfileDocument& d, Output output, size_t top) {
  View view;
  auto fields = columns_of<CollectiveRow>(kCollectiveTable, output, false);
  drop_unknown(fields, d.collectives);
  add_columns(view, fields);
  std::vector<const CollectiveRow*> rows;
  for (const CollectiveRow& c : d.collectives) rows.push_back(&c);
  if (output != Output::page) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const CollectiveRow* a, const CollectiveRow* b) { return a->exposed_ns > b->exposed_ns; });
    double rest = 0;
    for (size_t i = top; i < rows.size(); ++i) rest += rows[i]->exposed_ns;
    if (rows.size() > top) {
      view.notes.push_back(fmt::format("{} more collectives: {} ms exposed", rows.size() - top, milliseconds(rest)));
      rows.resize(top);
    }
  }
  if (d.ranks.size() > 1)
    view.notes.push_back("ms, exposed and hidden are medians over the ranks, so they do not add up to what one rank pays.");
  for (const CollectiveRow* c : rows) {
    ViewRow row;
    add_cells(row, fields, *c);
    view.rows.push_back(std::move(row));
  }
  return view;
}

std::vector<std::string> rank_sentences(const ProfileDocument& d) {
  std::vector<std::string> list;
  if (d.ranks.empty()) return list;
  for (const std::string& text : {how_many(d), communication(d.world), slowest(d.world), clocks(d.world)})
    if (!text.empty()) list.push_back(text);
  return list;
}

std::vector<ViewColumn> rank_pass_columns(const ProfileDocument& d) {
  if (d.rank_passes.empty()) return {};
  return {{"worst", false, false, 2, ""}, {"rank", false, false, 5, ""}, {"hidden", false, false, 4, ""}};
}

std::vector<ViewCell> rank_pass_cells(const ProfileDocument& d, const std::string& pass) {
  if (d.rank_passes.empty()) return {};
  const RankPassRow *worst = nullptr, *own = nullptr;
  for (const RankPassRow& p : d.rank_passes) {
    if (p.pass != pass) continue;
    if (!worst || p.time_ns > worst->time_ns) worst = &p;
    if (p.rank == d.world.main_rank) own = &p;
  }
  if (!worst) return {{"-", {}, {}}, {"-", {}, {}}, {}};
  const bool hides = own && own->hidden_ns > 0;
  return {{milliseconds(worst->time_ns), worst->time_ns, {}},
          {std::to_string(worst->rank), static_cast<double>(worst->rank), {}},
          hides ? ViewCell{milliseconds(own->hidden_ns), own->hidden_ns, {}} : ViewCell{}};
}

}  // namespace profiler
