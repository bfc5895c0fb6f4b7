// Sums of dqkv's columns, which attention's backward for Hopper leaves on its way (attention.h), for a caller who does not want all of them.
#pragma once
#include <cstddef>

namespace hopper {

// Where they go. Of a pointer alone: all of them, and none where it is null.
struct ColumnSums {
  ColumnSums(float* all = nullptr, bool only_those_of_q = false) : rows(all), of_q_alone(only_those_of_q) {}

  float* rows;      // attention_sum_rows rows of 3C
  bool of_q_alone;  // of each row only the first C are wanted, those of dq; the others may be written or left

  // Where those of dk and dv are wanted; else null.
  float* of_keys() const { return of_q_alone ? nullptr : rows; }
  friend bool operator==(const ColumnSums& sums, std::nullptr_t) { return sums.rows == nullptr; }
};

}  // namespace hopper
