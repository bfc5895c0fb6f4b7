#include "profiler/report/view.h"

#include "base/text.h"
#include "profiler/report/text_table.h"

namespace profiler {

using stepscope::markdown_escaped;

std::string terminal_text(const View& view, size_t width, bool color) {
  std::vector<TextTable::Column> columns;
  for (const ViewColumn& c : view.columns)
    columns.push_back({c.title, c.text ? TextTable::Align::left : TextTable::Align::right, c.elastic, c.drop});
  TextTable table(std::move(columns));
  for (const ViewRow& row : view.rows) {
    std::vector<std::string> cells;
    for (const ViewCell& cell : row.cells) cells.push_back(cell.text);
    using Kind = ViewRow::Kind;
    table.row(std::move(cells), row.kind == Kind::sum ? "1" : row.kind == Kind::faint ? "2" : row.kind == Kind::warning ? "33" : "");
  }
  for (const std::string& note : view.notes) table.note(note);
  return table.text(width, color);
}

std::string markdown_text(const View& view) {
  std::string out = "|", rule = "|";
  for (const ViewColumn& c : view.columns) {
    out += " " + c.title + " |";
    rule += c.text ? "---|" : "--:|";
  }
  out += "\n" + rule + "\n";
  for (const ViewRow& row : view.rows) {
    out += "|";
    for (const ViewCell& cell : row.cells) out += " " + markdown_escaped(cell.text) + (cell.text.empty() ? "|" : " |");
    out += "\n";
  }
  for (const std::string& note : view.notes) out += "\n" + markdown_escaped(note) + "\n";
  return out;
}

}  // namespace profiler
