#include "experiments/session/built_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/process.h"
#include "base/read_file.h"
#include "base/say.h"
#include "base/sha256.h"
#include "base/stderr_text.h"
#include "experiments/runner/arm.h"
#include "experiments/session/child_output.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using stepscope::InputError;
using stepscope::MachineError;
using Arguments = std::vector<std::string>;

constexpr double kGitTimeout_s = 120;

// Runs a helper to its end; its words, stdout and stderr together, are the answer. Throws Interrupted.
ChildOutput run_tool(const BuildOptions& o, const Arguments& argv) {
  if (stepscope::program_in_path(argv[0]).empty())
    throw MachineError(fmt::format("{} is not installed: an arm of other sources is built with git, tar and cmake", argv[0]));
  ChildOutput out = run_to_end(argv, kGitTimeout_s, o.stop, true);
  if (out.end == ChildOutput::End::interrupted) throw Interrupted();
  if (out.end == ChildOutput::End::timeout)
    throw MachineError(fmt::format("`{}` did not end within {:.0f} s", fmt::join(argv, " "), kGitTimeout_s));
  return out;
}

bool succeeded(const ChildOutput& out) { return out.ending.exited && out.ending.code == 0; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Of a tree without a repository: everything but build folders and what hides.
std::vector<std::string> files_below(const fs::path& root) {
  std::vector<std::string> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory() && !it->is_symlink() && (name.starts_with(".") || name.starts_with("build")) && it.depth() == 0)
      it.disable_recursion_pending();
    else if (!it->is_directory() || it->is_symlink())
      files.push_back(fs::relative(it->path(), root).generic_string());
  }
  return files;
}

// A path that git prints in quotes has letters that it escapes; none of this project has. `notice`: that files are taken which git would have
// left out, where it does not take the tree's own repository, another owner's say.
std::vector<std::string> files_of_the_tree(const BuildOptions& o, std::string& notice) {
  const ChildOutput top = run_tool(o, {"git", "-C", o.root.string(), "rev-parse", "--show-toplevel"});
  std::error_code other;
  if (!succeeded(top) || !fs::equivalent(first_line(top.text), o.root, other)) {
    if (fs::exists(fs::symlink_status(o.root / ".git")))
      notice = fmt::format("{}: git does not take the repository there ({}), so the arm is built from files that git ignores too",
                           o.root.string(), first_line(top.text));
    return files_below(o.root);
  }
  const ChildOutput out =
      run_tool(o, {"git", "-C", o.root.string(), "-c", "core.quotepath=off", "ls-files", "--cached", "--others", "--exclude-standard"});
  if (!succeeded(out)) throw MachineError(fmt::format("{}: git names no files of this tree: {}", o.root.string(), first_line(out.text)));
  std::istringstream lines(out.text);
  std::set<std::string> files;  // a file in a merge conflict is named three times
  for (std::string line; std::getline(lines, line);) files.insert(line);
  return {files.begin(), files.end()};
}

// `tree` may lie inside another repository: without the ceiling git takes paths from there, and skips every hunk without a word.
ChildOutput git_apply(const BuildOptions& o, const fs::path& tree, const fs::path& patch, const Arguments& more = {}) {
  Arguments argv{"env", "GIT_CEILING_DIRECTORIES=" + fs::absolute(tree).parent_path().string(), "git", "-C", tree.string(), "apply"};
  argv.insert(argv.end(), more.begin(), more.end());
  argv.push_back(fs::absolute(patch).string());
  return run_tool(o, argv);
}

void copy_tree(const BuildOptions& o, const fs::path& tree, std::string& notice) {
  for (const std::string& file : files_of_the_tree(o, notice)) {
    const fs::path from = o.root / file, to = tree / file;
    if (!fs::exists(fs::symlink_status(from))) continue;  // deleted, but not in git yet
    fs::create_directories(to.parent_path());
    fs::copy(from, to, fs::copy_options::copy_symlinks);
  }
}

void apply(const BuildOptions& o, const fs::path& tree, const fs::path& patch) {
  if (const ChildOutput out = git_apply(o, tree, patch); !succeeded(out))
    throw InputError(fmt::format("{} does not apply to {}: {}", patch.string(), o.root.string(), first_line(out.text)));
}

// Arm A then lacks what this tree has, and has what this tree lacks: a difference that nobody made here. Other branches may be compared, so
// this is said and not refused. "": the revision is of this tree's history, or git cannot say.
std::string why_not_since(const BuildOptions& o, const std::string& revision, const std::string& commit) {
  const ChildOutput ancestor = run_tool(o, {"git", "-C", o.root.string(), "merge-base", "--is-ancestor", commit, "HEAD"});
  if (!ancestor.ending.exited || ancestor.ending.code != 1) return "";
  const ChildOutput base = run_tool(o, {"git", "-C", o.root.string(), "merge-base", commit, "HEAD"});
  const std::string what = fmt::format("{} is not in the history of HEAD, so the verdict is of its own changes too", revision);
  if (!succeeded(base)) return what + "; the two have no commit in common";
  return fmt::format("{}; the changes of this tree alone are those since {}", what, first_line(base.text).substr(0, 12));
}

std::string take_revision(const BuildOptions& o, const fs::path& tree, const std::string& revision) {
  const ChildOutput name =
      run_tool(o, {"git", "-C", o.root.string(), "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"});
  // git says nothing about a name that it does not know. What it says is why it refuses the whole tree, such as another owner's.
  if (!succeeded(name))
    throw InputError(fmt::format("'{}': git knows no such revision in {}{}", revision, o.root.string(),
                                 name.text.empty() ? "" : ": " + first_line(name.text)));
  const std::string commit = first_line(name.text), archive = tree.string() + ".tar";
  for (const Arguments& argv : {Arguments{"git", "-C", o.root.string(), "archive", "--format=tar", "-o", archive, commit},
                                Arguments{"tar", "-xf", archive, "-C", tree.string()}})
    if (const ChildOutput out = run_tool(o, argv); !succeeded(out))
      throw MachineError(fmt::format("the tree of {} could not be taken out of git: {}", revision, first_line(out.text)));
  fs::remove(archive);
  return commit;
}

bool same_content(const fs::path& a, const fs::path& b) {
  std::error_code none;
  if (fs::is_symlink(a) || !fs::is_regular_file(b, none) || fs::file_size(a) != fs::file_size(b)) return false;
  return stepscope::read_file(a) == stepscope::read_file(b);
}

// Puts `fresh` in the place of `tree`. A file that did not change keeps its time, and what was compiled from it stands; any other is new,
// also one that a commit dates before the objects.
void replace_tree(const fs::path& fresh, const fs::path& tree) {
  const auto now = fs::file_time_type::clock::now();
  for (const auto& entry : fs::recursive_directory_iterator(fresh)) {
    if (!entry.is_regular_file() || entry.is_symlink()) continue;
    const fs::path old = tree / fs::relative(entry.path(), fresh);
    fs::last_write_time(entry.path(), same_content(entry.path(), old) ? fs::last_write_time(old) : now);
  }
  fs::remove_all(tree);
  fs::rename(fresh, tree);
}

// The cmake arguments by which `program` was configured. Left out are tests, and what cmake found by itself.
Arguments configure_flags(const fs::path& cache) {
  Arguments out;
  std::istringstream lines(stepscope::read_file(cache));
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':'), equals = line.find('=');
    if (colon == std::string::npos || equals == std::string::npos || colon > equals) continue;
    const std::string key = line.substr(0, colon), type = line.substr(colon + 1, equals - colon - 1), value = line.substr(equals + 1);
    if (type == "INTERNAL" && key == "CMAKE_GENERATOR") out.insert(out.end(), {"-G", value});
    if (type == "INTERNAL" || type == "STATIC" || key == "STEPSCOPE_TESTS" || key == "STEPSCOPE_BUGS" || key == "STEPSCOPE_FUZZ") continue;
    static const std::set<std::string> kSet{"CMAKE_BUILD_TYPE",         "CMAKE_CXX_COMPILER",     "CMAKE_CUDA_COMPILER",
                                            "CMAKE_CUDA_HOST_COMPILER", "CMAKE_EXE_LINKER_FLAGS", "CMAKE_MAKE_PROGRAM",
                                            "CMAKE_PREFIX_PATH",        "CUDAToolkit_ROOT"};
    if (key.starts_with("STEPSCOPE_") || kSet.contains(key) || key.starts_with("CMAKE_CXX_FLAGS") || key.starts_with("CMAKE_CUDA_FLAGS"))
      out.push_back(fmt::format("-D{}:{}={}", key, type, value));
  }
  out.insert(out.end(), {"-DSTEPSCOPE_TESTS=OFF", "-DSTEPSCOPE_BUGS=OFF", "-DSTEPSCOPE_FUZZ=OFF"});
  return out;
}

// Refused and not waited for: the other may measure for hours, and two commands that have a patch each which the other needs would wait for
// ever.
std::shared_ptr<const gpt2::Descriptor> locked(const fs::path& folder) {
  const auto lock = std::make_shared<const gpt2::Descriptor>(::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!*lock) throw MachineError(fmt::format("{}: cannot be written", (folder / "lock").string()));
  if (!gpt2::lock_as_writer(lock->get(), false))
    throw MachineError(fmt::format("{}: another command builds an arm there, or measures it; wait until it has ended", folder.string()));
  return lock;
}

class Build {
 public:
  Build(const BuildOptions& options, std::string what, const fs::path& log) : o_(options), what_(std::move(what)), log_(log), file_(log) {}

  // Runs one part of the build; its words go to the log.
  void run(const Arguments& argv) {
    ChildProcessGroup child({argv, {}, false, true});
    std::string line, first_error;
    auto said = Clock::now();
    for (;;) {
      const auto read = child.read_line(line, deadline_, o_.stop);
      if (read == ChildProcessGroup::Read::interrupted) throw Interrupted();
      if (read == ChildProcessGroup::Read::timeout)
        throw MachineError(fmt::format("{}: the build did not end within {:.0f} s ({})", what_, o_.timeout_s, log_.string()));
      if (read == ChildProcessGroup::Read::end_of_output) break;
      file_ << line << std::endl;  // somebody may watch it
      if (first_error.empty() && (line.find("error:") != std::string::npos || line.find("CMake Error") != std::string::npos))
        first_error = line;
      if (o_.progress && line.starts_with("[") && Clock::now() - said > std::chrono::seconds(5)) {
        said = Clock::now();
        stepscope::put_on_stderr(fmt::format("building {}: {}\n", what_, line.substr(0, line.find(']') + 1)));
      }
    }
    file_.flush();
    const auto ending = child.wait(deadline_);
    if (!ending || !ending->exited || ending->code != 0)
      throw InputError(fmt::format("{} does not build: {} (whole log: {})", what_,
                                   first_error.empty() ? first_line(child.last_words()) : first_error, log_.string()));
  }

 private:
  const BuildOptions& o_;
  std::string what_;
  fs::path log_;
  std::ofstream file_;
  Clock::time_point deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(o_.timeout_s));
};

}  // namespace

std::string arm_folder(const Sources& sources) {
  if (sources.patch.empty()) return "revision";
  std::error_code unresolved;
  fs::path file = fs::weakly_canonical(sources.patch, unresolved);
  if (unresolved) file = fs::absolute(sources.patch).lexically_normal();
  return fmt::format("{}-{:.8}", file.stem().string(), gpt2::sha256_text(file.string()));
}

BuiltProgram build_program(const BuildOptions& o, const Sources& sources) {
  const fs::path build = fs::absolute(o.program).parent_path().parent_path(), cache = build / "CMakeCache.txt";
  if (!fs::exists(cache))
    throw MachineError(fmt::format("{} does not lie in a build folder (there is no {}): an arm of other sources is built with its flags",
                                   o.program.string(), cache.string()));
  const fs::path folder = build / "arms" / arm_folder(sources), tree = folder / "tree", fresh = folder / "fresh";
  fs::create_directories(folder);
  BuiltProgram out;
  out.lock = locked(folder);
  fs::remove_all(fresh);
  fs::create_directories(fresh);
  out.root = tree;
  out.program = folder / "build/bin" / o.program.filename();
  if (sources.patch.empty()) {
    out.commit = take_revision(o, fresh, sources.revision);
    out.notice = why_not_since(o, sources.revision, out.commit);
  } else {
    copy_tree(o, fresh, out.notice);
    apply(o, fresh, sources.patch);
  }
  if (!out.notice.empty()) stepscope::say(out.notice);
  replace_tree(fresh, tree);
  // Headers that no package has (cudnn-frontend); git ignores them.
  if (fs::exists(o.root / ".deps") && !fs::exists(fs::symlink_status(tree / ".deps")))
    fs::create_directory_symlink(fs::absolute(o.root / ".deps"), tree / ".deps");

  if (o.check) o.check(tree);

  Build steps(o, sources.patch.empty() ? "revision " + sources.revision : "arm B with " + sources.patch.filename().string(),
              folder / "build.log");
  Arguments configure{"cmake", "-S", tree.string(), "-B", (folder / "build").string()};
  const Arguments flags = configure_flags(cache);
  configure.insert(configure.end(), flags.begin(), flags.end());
  steps.run(configure);
  std::string target = o.program.filename().string();
  std::replace(target.begin(), target.end(), '-', '_');
  Arguments make{
      "cmake",    "--build", (folder / "build").string(), "-j", std::to_string(std::max(1u, std::thread::hardware_concurrency())),
      "--target", target};
  if (target == "stepscope" && fs::exists(build / "lib/libstepscope_collect.so")) make.emplace_back("stepscope_collect");
  steps.run(make);
  return out;
}

std::string why_not_applicable(const fs::path& root, const fs::path& patch) {
  const ChildOutput out = git_apply({root, {}, {}}, root, patch, {"--check"});
  return succeeded(out) ? "" : first_line(out.text);
}

}  // namespace experiments
