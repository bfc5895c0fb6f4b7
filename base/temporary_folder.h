// A fresh folder under the system's temporary folder that nobody else has, removed with everything in it when the object goes. One whose
// process was killed (ctrl-C) stays; whoever makes the next removes it, known by a file .made-by-stepscope beside it and a lock that
// nobody holds any more.
#pragma once
#include <filesystem>
#include <string>

namespace stepscope {

class TemporaryFolder {
 public:
  // Throws stepscope::MachineError naming the folder and the reason.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  void remove() const;
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace stepscope
