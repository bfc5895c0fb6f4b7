#include "gpt2/op_range.h"

namespace gpt2 {
namespace {
RangeListener* g_listener = nullptr;
}
void set_range_listener(RangeListener* listener) { g_listener = listener; }
RangeListener* range_listener() { return g_listener; }
}  // namespace gpt2
