// NCCL in a build that found no nccl.h.
#include "base/errors.h"
#include "gpt2/distributed/nccl.h"

namespace gpt2::distributed {

std::optional<std::string> why_no_nccl() {
  return "this build has no NCCL: put nccl.h where CMake finds it (install libnccl-dev, or unpack the Python package nvidia-nccl-cu13 and "
         "give its include folder as -DSTEPSCOPE_NCCL_INCLUDE), delete the build folder and build again";
}
std::string nccl_version() { return ""; }

std::unique_ptr<Communicator> make_nccl(const World&, ControlChannel&, const NcclOptions&) {
  throw stepscope::MachineError(*why_no_nccl());
}
std::unique_ptr<Communicator> make_nccl(const World& world, ControlChannel& channel) { return make_nccl(world, channel, {}); }

}  // namespace gpt2::distributed
