#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/errors.h"
#include "base/process.h"
#include "base/temporary_folder.h"
#include "experiments/learn/call.h"
#include "gpt2/cuda/device_info.h"

namespace learn {
namespace {

namespace fs = std::filesystem;

// Whoever sets CUDACXX for CMake may give a name alone.
std::string compiler(const std::string& source) {
  const char* named = std::getenv("CUDACXX");
  const bool chosen = named && *named;
  const std::string word = chosen ? named : "nvcc";
  const std::string file = word.find('/') != std::string::npos ? word : stepscope::program_in_path(word, "/usr/local/cuda/bin");
  if (!file.empty() && fs::exists(file)) return file;
  if (chosen)
    throw stepscope::MachineError(
        fmt::format("--with compiles {} with CUDACXX, which is '{}', and there is no such program: set it to nvcc", source, word));
  throw stepscope::MachineError(
      fmt::format("--with compiles {} with nvcc, and there is none in PATH: install the CUDA toolkit or set CUDACXX", source));
}

class Library {
 public:
  explicit Library(const std::string& source) {
    require_source(source);
    const std::string nvcc = compiler(source), library = folder_.file("solution.so");
    std::string sm = gpt2::cuda::device_info().compute_capability;
    std::erase(sm, '.');
    const auto result =
        stepscope::run_child({nvcc, "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-arch=sm_" + sm, "-o", library, source}, {},
                             /*stdout_to_stderr=*/true);
    if (!result.exited || result.exit_code != 0) throw stepscope::InputError(fmt::format("--with {}: it does not compile (above)", source));
    handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) throw stepscope::InputError(fmt::format("--with {}: {}", source, dlerror()));
  }
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  void* function(const std::string& name) const { return dlsym(handle_, name.c_str()); }

 private:
  stepscope::TemporaryFolder folder_;
  void* handle_ = nullptr;
};

template <class Function>
decltype(Rung::launch) loaded(const std::shared_ptr<Library>& library, void* function) {
  return [library, f = reinterpret_cast<Function*>(function)](const Sizes& z, Pointers p, cudaStream_t s) { call(f, z, p, s); };
}

}  // namespace

void require_source(const std::string& file) {
  if (!fs::is_regular_file(file)) throw stepscope::InputError(fmt::format("--with {}: no such file", file));
}

Rung solution(std::string_view op, const std::string& file) {
  const auto library = std::make_shared<Library>(file);
  void* function = library->function(std::string(op));
  if (!function)
    throw stepscope::InputError(fmt::format(
        "--with {}: expected a function extern \"C\" void {}(…) with the arguments that experiments/learn/rungs.h gives for it", file, op));
  Rung r{std::string(op), "yours", "from " + file, {}, {}};
  if (op == "layernorm_forward") r.launch = loaded<LayernormForward>(library, function);
  if (op == "layernorm_backward") r.launch = loaded<LayernormBackward>(library, function);
  if (op == "linear_forward") r.launch = loaded<LinearForward>(library, function);
  if (op == "attention_forward") r.launch = loaded<AttentionForward>(library, function);
  if (op == "classifier") r.launch = loaded<Classifier>(library, function);
  return r;
}

}  // namespace learn
