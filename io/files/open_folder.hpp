#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "io/files/atomic_file.hpp"

namespace mpzero::io {

// Identifies a file or folder independently of its name: renaming keeps the inode. The inode of a removed file can be
// reused by a new one, unless the removed one is held open.
struct Inode {
  dev_t device = 0;
  ino_t number = 0;
  bool operator==(const Inode&) const = default;
};

// The inode of `path` itself, also if it is a link. std::nullopt if the path does not exist. Throws through
// throw_system_error if the system cannot tell.
std::optional<Inode> inode_of(const std::filesystem::path& path);

// Identifies one version of a file: a replaced file has another inode, a file rewritten in place another modification
// time.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;  // since the epoch

  bool operator==(const FileIdentity&) const = default;
};

// A handle of an open folder. Reads through it always see the folder that the path named when it was opened, even if
// the path now names another folder. Thread-safe.
class OpenFolder {
 public:
  // Throws Damaged if `path` is not a folder. Throws through throw_system_error if the system cannot tell.
  explicit OpenFolder(std::filesystem::path path);
  ~OpenFolder();
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // std::nullopt if the folder holds no such file. Throws through throw_system_error if the system cannot tell.
  std::optional<FileIdentity> find(const std::string& name) const;
  bool holds(const std::string& name) const { return find(name).has_value(); }
  // Opens a file in the folder for reading. The file's path is used in messages. Throws through throw_system_error.
  File open(const std::string& name) const;

  // Changes of the path and of the opened files since they were opened.
  enum class Change {
    kNone,
    kReplaced,   // the path names another folder
    kRemoved,    // the path does not exist
    kRewritten,  // an opened file has other contents or was removed from the folder
  };
  Change change() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  mutable std::mutex mutex_;
  mutable std::map<std::string, FileIdentity> opened_;  // identity of each file when it was first opened
};

// "was replaced", "was removed", "was rewritten"; empty for kNone.
const char* name_of(OpenFolder::Change change);

}  // namespace mpzero::io
