// The matrix product of the CPU reference: packed, register-blocked, on all threads or on one.
// An output element is summed by one thread in an order that depends only on `depth`: bitwise the same result
// for any number of threads, and rows do not see each other (row i of the output is a function of row i of
// `a` and of `b` alone).
#pragma once
#include <cstdint>

#include "gpt2/reference/buffer.h"

namespace gpt2::reference {

// Element (i, j) lies at data[i * row_stride + j * column_stride]; a transposed matrix is one with its
// strides exchanged. Fast when one of the two strides is 1.
template <typename Real>
struct Operand {
  const Real* data;
  int64_t row_stride;
  int64_t column_stride;
};

// out (rows, columns) = a (rows, depth) · b (depth, columns) [+ bias] [+ out]; `out` is row-major with
// `out_stride`, and must not overlap the operands.
template <typename Real>
struct Product {
  int64_t rows, columns, depth;
  Operand<Real> a, b;
  Real* out;
  int64_t out_stride;
  const Real* bias = nullptr;  // one per column
  bool accumulate = false;     // add to what `out` holds
};

// Packed copies of one block of each operand.
template <typename Real>
class PackBuffers {
 public:
  // Blocks of at most this many rows of `a` and columns of `b` (rounded up inside) are packed at a time,
  // `depth_blocks` deep and deeper where the product is smaller than that.
  PackBuffers(int64_t block_rows, int64_t block_columns, int64_t depth_blocks = 1);
  int64_t block_rows() const { return block_rows_; }
  int64_t block_columns() const { return block_columns_; }
  Real* a() { return a_.data(); }
  Real* b() { return b_.data(); }
  int64_t a_size() const { return a_.size(); }
  int64_t b_size() const { return b_.size(); }
  int64_t bytes() const { return a_.bytes() + b_.bytes(); }

 private:
  int64_t block_rows_, block_columns_;
  Buffer<Real> a_, b_;
};

template <typename Real>
void multiply(const Product<Real>& product, PackBuffers<Real>& buffers);
template <typename Real>
void multiply_on_one_thread(const Product<Real>& product, PackBuffers<Real>& buffers);

// A linear layer over `rows` tokens; weight is (outputs, inputs), row-major.
template <typename Real>
struct Linear {
  int64_t rows, inputs, outputs;
  int64_t output_stride;  // of `out` and its gradient: >= outputs, larger for the logits (padded vocabulary)
};
// out = x · weightᵀ + bias (nullptr: none)
template <typename Real>
void linear_forward(const Linear<Real>& shape, Real* out, const Real* x, const Real* weight, const Real* bias, PackBuffers<Real>& buffers);
// dx = dout · weight (overwrites), dweight (+)= doutᵀ · x. The bias gradient is a column sum: see layers.h.
template <typename Real>
void linear_backward(const Linear<Real>& shape, Real* dx, Real* dweight, const Real* dout, const Real* x, const Real* weight,
                     bool accumulate, PackBuffers<Real>& buffers);

}  // namespace gpt2::reference
