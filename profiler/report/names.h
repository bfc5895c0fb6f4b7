// Kernel names that fit a table. The document always keeps the full one; these are for eyes only and never a
// key.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace profiler {

// "void fp32::(anonymous namespace)::adamw_kernel<4>(float*, int)" -> "adamw_kernel"; a wrapper that says
// nothing by itself
// ("cutlass::Kernel2<cutlass_80_simt_sgemm_…>") gives its first template argument, where that is neither a built-in
// type nor a value. Names it cannot take apart stay as they are.
std::string short_kernel_name(std::string_view full);

// At most `width` columns of a screen, the middle replaced by ".." (beginnings and ends of GEMM names both
// matter).
std::string elide(std::string_view text, size_t width);

// "bwd attention": pass in three letters, and the op.
std::string place_words(std::string_view pass, std::string_view op);

}  // namespace profiler
