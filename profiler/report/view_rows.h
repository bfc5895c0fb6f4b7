// From the field lists to columns and cells, for whoever makes a table (views.cpp, rank_views.cpp).
#pragma once
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "profiler/document/fields.h"
#include "profiler/report/cells.h"
#include "profiler/report/views.h"

namespace profiler {

template <class Row>
using Fields = std::vector<const Field<Row>*>;

// The columns of a table, in the order of the document. `of_kernels`: no work model, so that only the kernels' own floors are known.
template <class Row>
Fields<Row> columns_of(Table table, Output output, bool of_kernels) {
  Fields<Row> list;
  for (const Field<Row>& f : fields_of<Row>()) {
    const unsigned tables = f.shown.tables | (output == Output::page ? f.shown.page : kNoTable);
    const bool other_floor = f.shown.floors == (of_kernels ? Floors::of_ops : Floors::of_kernels);
    if (!f.shown.title.empty() && (tables & table) && !other_floor) list.push_back(&f);
  }
  return list;
}

template <class Row>
void add_columns(View& view, const Fields<Row>& fields) {
  for (const Field<Row>* f : fields)
    view.columns.push_back({std::string(f->shown.title),
                            std::holds_alternative<Text Row::*>(f->member) || std::holds_alternative<std::string Row::*>(f->member), false,
                            f->shown.drop, std::string(f->name)});
}

template <class Row>
std::optional<double> number_of(const Field<Row>& f, const Row& row) {
  return std::visit(
      [&](auto member) -> std::optional<double> {
        using T = std::remove_cvref_t<decltype(row.*member)>;
        if constexpr (std::is_same_v<T, Count> || std::is_same_v<T, Number>)
          return row.*member ? std::optional(static_cast<double>(*(row.*member))) : std::nullopt;
        else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>)
          return static_cast<double>(row.*member);
        else
          return std::nullopt;
      },
      f.member);
}

template <class Row>
std::string text_of(const Field<Row>& f, const Row& row) {
  if constexpr (std::is_base_of_v<Measured, Row>)
    if (f.shown.format == Format::launches) return std::to_string(row.launches + row.copies);
  if constexpr (std::is_base_of_v<Numbers, Row>)
    if (f.shown.format == Format::tensor) return tensor_cell(row);
  if (const auto* text = std::get_if<std::string Row::*>(&f.member)) return row.*(*text);
  if (const auto* text = std::get_if<Text Row::*>(&f.member)) return (row.*(*text)).value_or("-");
  if (const auto* size = std::get_if<std::array<int64_t, 3> Row::*>(&f.member))  // a copy or a range of the host has none
    return row.*(*size) == std::array<int64_t, 3>{} ? "-" : fmt::format("{}", fmt::join(row.*(*size), "x"));
  return text_of(f.shown.format, number_of(f, row));
}

// What the cell above shows, as a number: copies count as launches there, and a grid has as many blocks as its sides make.
template <class Row>
std::optional<double> sorts_by(const Field<Row>& f, const Row& row) {
  if constexpr (std::is_base_of_v<Measured, Row>)
    if (f.shown.format == Format::launches) return static_cast<double>(row.launches + row.copies);
  if (const auto* size = std::get_if<std::array<int64_t, 3> Row::*>(&f.member)) {
    const auto& sides = row.*(*size);
    if (sides == std::array<int64_t, 3>{}) return std::nullopt;
    return static_cast<double>(sides[0]) * static_cast<double>(sides[1]) * static_cast<double>(sides[2]);
  }
  return number_of(f, row);
}

template <class Row>
void add_cells(ViewRow& to, const Fields<Row>& fields, const Row& row) {
  for (const Field<Row>* f : fields) to.cells.push_back({text_of(*f, row), sorts_by(*f, row), {}});
}

}  // namespace profiler
