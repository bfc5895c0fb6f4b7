#include "base/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/errors.h"

namespace stepscope {

TemporaryFolder::TemporaryFolder() {
  std::error_code ec;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(ec);
  if (ec) {
    const char* named = nullptr;
    for (const char* variable : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"})  // in the order in which the library asks for them
      if (named = std::getenv(variable); named) {
        throw MachineError(std::string("cannot make a temporary folder: the variable ") + variable + " names '" + named +
                           "', expected a folder (" + ec.message() + ")");
      }
    throw MachineError("cannot make a temporary folder: there is no /tmp; let the variable TMPDIR name a folder");
  }
  std::string name = (parent / "stepscope-XXXXXX").string();
  if (!mkdtemp(name.data())) throw MachineError("cannot make a temporary folder '" + name + "': " + std::strerror(errno));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace stepscope
