// Sums of more terms than one thread should add up: a thread adds up a chunk, and who asked adds the chunks, in their order. So a sum has
// the same bits on the host and on the device, and its rounding grows with n / kChunk.
//
// A functor `term(Part& part, int64_t row, int64_t column)` adds one element of a rows x columns matrix to a Part, which begins as Part{}.
// A plain list is one row.
#pragma once
#include "experiments/gate/op_each.cuh"

namespace gate {

inline constexpr int64_t kChunk = 256;
inline int64_t chunks(int64_t n) { return gpt2::cuda::ceil_div<int64_t>(n, kChunk); }
GATE_ANYWHERE inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

template <class Part, class Term>
struct ChunkOfARow {
  Part* out;
  Term term;
  int64_t columns, per_row;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / per_row, chunk = i % per_row;
    Part part{};
    for (int64_t c = chunk * kChunk; c < least((chunk + 1) * kChunk, columns); ++c) term(part, row, c);
    out[i] = part;
  }
};
// (rows, chunks(columns)) Parts.
template <class Part, class Term>
Memory row_chunks(Space space, int64_t rows, int64_t columns, const Term& term) {
  Memory parts(space, rows * chunks(columns) * static_cast<int64_t>(sizeof(Part)));
  for_each_index(space, rows * chunks(columns), ChunkOfARow<Part, Term>{parts.as<Part>(), term, columns, chunks(columns)});
  return parts;
}

template <class Part, class Term>
struct ChunkOfAColumn {
  Part* out;
  Term term;
  int64_t rows, columns;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t chunk = i / columns, c = i % columns;
    Part part{};
    for (int64_t r = chunk * kChunk; r < least((chunk + 1) * kChunk, rows); ++r) term(part, r, c);
    out[i] = part;
  }
};
// (chunks(rows), columns) Parts.
template <class Part, class Term>
Memory column_chunks(Space space, int64_t rows, int64_t columns, const Term& term) {
  Memory parts(space, chunks(rows) * columns * static_cast<int64_t>(sizeof(Part)));
  for_each_index(space, chunks(rows) * columns, ChunkOfAColumn<Part, Term>{parts.as<Part>(), term, rows, columns});
  return parts;
}

// The Parts of a list of n elements, on the host.
template <class Part, class Term>
std::vector<Part> list_chunks(Space space, int64_t n, const Term& term) {
  return values_of<Part>(row_chunks<Part>(space, 1, n, term));
}

}  // namespace gate
