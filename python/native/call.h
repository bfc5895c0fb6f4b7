// What every function of the C interface does around its launches: arguments are checked with a sentence, exceptions become codes.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "base/errors.h"
#include "python/native/stepscope_ops.h"

namespace ops_c {

using bf16 = __nv_bfloat16;

// The sentence that stepscope_ops_last_error() returns in this thread.
std::string& last_error();

// The code of what is being handled; call in a catch block only.
int code_of_exception() noexcept;

// body() with exceptions as codes.
template <class Body>
int guarded(const Body& body) noexcept {
  try {
    body();
    return STEPSCOPE_OPS_OK;
  } catch (...) {
    return code_of_exception();
  }
}

// Each throws stepscope::InputError that begins with the name of the function and names what was found.
struct Check {
  const char* function;

  void not_null(const void* pointer, const char* name) const;
  // NULL only where there is nothing to point to.
  void not_null_if(bool needed, const void* pointer, const char* name) const {
    if (needed) not_null(pointer, name);
  }
  void at_least(int64_t value, int64_t least, const char* name) const;
  void storage(int storage) const;
  void storage_and_stream(int storage, int stream) const;
  void scratch(const void* scratch, int64_t given, int64_t needed) const;
  [[noreturn]] void refuse(const std::string& why) const;
};

// use(S{}) with the element type of a storage that was checked.
template <class Use>
void with_storage(int storage, const Use& use) {
  if (storage == STEPSCOPE_OPS_F32)
    use(float{});
  else
    use(bf16{});
}
// use(S{}, R{}).
template <class Use>
void with_stream(int storage, int stream, const Use& use) {
  if (storage == STEPSCOPE_OPS_F32)
    use(float{}, float{});
  else if (stream == STEPSCOPE_OPS_BF16)
    use(bf16{}, bf16{});
  else
    use(bf16{}, float{});
}

// The enumerator of a variant's name in the table of the trainer with this storage.
int variant_index(int storage, const char* function, const char* slot, const char* variant);

template <class S>
S* as(void* p, S) {
  return static_cast<S*>(p);
}
template <class S>
const S* as(const void* p, S) {
  return static_cast<const S*>(p);
}
inline cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace ops_c
