// The program of an arm that is built from other sources than this one: the tree with a patch, or another revision.
//
// Both arms must differ by their sources alone, so the other program is built with the flags of this one (its CMakeCache.txt).
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/atomic_file.h"
#include "experiments/plan/experiment_file.h"

namespace experiments {

struct BuiltProgram {
  std::filesystem::path root, program;  // its source tree; `stepscope`, or `stepscope-host` where that is the program here
  std::string commit;                   // full name; "" of a patch
  std::string notice = {};              // said on stderr; "" where HEAD contains the revision and git takes the repository
  // While it is held no other command builds in that folder, which would replace the program that is measured. Null of the program here.
  std::shared_ptr<const gpt2::Descriptor> lock = {};
};

struct BuildOptions {
  std::filesystem::path root, program;  // the source tree here, and the program that was built from it
  // Hears of the other tree before a minute is spent on compiling it, and throws where that is not worth it.
  std::function<void(const std::filesystem::path& tree)> check;
  double timeout_s = 3600;
  const std::atomic<bool>* stop = nullptr;
  bool progress = false;
};

// Copies the tree as it stands (what git tracks, and what it does not ignore; without a repository all but build folders) and applies the
// patch, or takes the revision out of git; then builds. Tree and objects stay below the build folder of `program`, in its arms/, in
// arm_folder(), so that the next build there compiles what differs. Throws stepscope::InputError for an unknown revision, a patch that does not
// apply (with git's words) and sources that do not compile (with the first error and the log's name); stepscope::MachineError without git,
// tar, cmake or a build folder, and where another command holds what it built in that folder; Interrupted.
BuiltProgram build_program(const BuildOptions& options, const Sources& sources);

// "revision", or "STEM-HASH" of a patch's place: two of one file name are two programs, and one that is edited keeps its objects.
std::string arm_folder(const Sources& sources);

// Why the patch cannot be applied to the tree as it stands, in git's words; "" = it can.
std::string why_not_applicable(const std::filesystem::path& root, const std::filesystem::path& patch);

}  // namespace experiments
