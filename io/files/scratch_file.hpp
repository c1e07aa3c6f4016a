#pragma once

#include <filesystem>

namespace mpzero::io {

// A file, in memory where the system has a place for such files, for a library that wants a path. It goes with its
// owner. What is never written in it takes no room.
class ScratchFile {
 public:
  ScratchFile();
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace mpzero::io
