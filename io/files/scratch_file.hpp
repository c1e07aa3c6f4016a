#pragma once

#include <filesystem>

namespace mpzero::io {

// A temporary file for a library that requires a path. Uses an in-memory file system if available. The file is sparse,
// and the destructor removes it.
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
