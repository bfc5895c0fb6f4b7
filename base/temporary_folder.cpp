#include "base/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/errors.h"

namespace stepscope {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "stepscope-XXXXXX").string();
  if (!mkdtemp(name.data())) throw MachineError("cannot make a temporary folder '" + name + "': " + std::strerror(errno));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace stepscope
