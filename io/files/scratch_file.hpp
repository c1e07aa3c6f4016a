#pragma once

#include <filesystem>

namespace mpzero::io {

// A temporary file for a library that needs a path, in memory if the system has a place for such files. Removed by the
// destructor. Takes no space for bytes that are never written.
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
