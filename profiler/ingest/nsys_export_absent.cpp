// In place of nsys_export.cpp where SQLite's header was not found at configure time.
#include <cstring>

#include "base/errors.h"
#include "profiler/ingest/nsys_export.h"

namespace profiler {

bool reads_nsys_exports() { return false; }

bool looks_like_sqlite(std::span<const std::byte> bytes) {
  constexpr char kMagic[] = "SQLite format 3";
  return bytes.size() >= sizeof kMagic && std::memcmp(bytes.data(), kMagic, sizeof kMagic) == 0;
}

ForeignReport read_nsys_export(const std::filesystem::path& path, const std::string&) {
  throw stepscope::MachineError(path.string() +
                                ": this program was built without SQLite (package libsqlite3-dev), which reads exports of nsys; install "
                                "the package, delete the build folder and build again");
}

}  // namespace profiler
