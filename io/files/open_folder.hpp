#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "io/files/atomic_file.hpp"

namespace mpzero::io {

// What tells one content of a file's name from another: a file that is replaced gets another inode, one that is
// rewritten in place another time.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;  // since the epoch

  bool operator==(const FileIdentity&) const = default;
};

// A folder that is held open. What is read through it is of the folder that the path named when it was opened, also
// when another one has got the name since. May be used from several threads at once.
class OpenFolder {
 public:
  // Throws Damaged where `path` is no folder, and through throw_system_error where the system does not tell.
  explicit OpenFolder(std::filesystem::path path);
  ~OpenFolder();
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Nothing where it holds no such file. Throws through throw_system_error where the system does not tell.
  std::optional<FileIdentity> find(const std::string& name) const;
  bool holds(const std::string& name) const { return find(name).has_value(); }
  // Opens a file of it for reading. The file's path is for messages. Throws through throw_system_error.
  File open(const std::string& name) const;

  // What has become of the path, and of the files that were opened, since.
  enum class Fate {
    kSame,
    kReplaced,   // the path names another folder
    kRemoved,    // the path names none
    kRewritten,  // a file that was opened has other contents, or is gone from the folder
  };
  Fate fate() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  mutable std::mutex mutex_;
  mutable std::map<std::string, FileIdentity> opened_;  // as each file was when it was first opened
};

// "was replaced", "was removed", "was rewritten"; empty for kSame.
const char* name_of(OpenFolder::Fate fate);

}  // namespace mpzero::io
