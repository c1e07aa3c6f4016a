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

// Identifies a file or folder independently of its name. Renaming keeps the inode. A new file can reuse the inode of a
// removed file unless the removed file is still open.
struct Inode {
  dev_t device = 0;
  ino_t number = 0;
  bool operator==(const Inode&) const = default;
};

// Returns the inode of `path` without following links, or std::nullopt if the path does not exist. See
// throw_system_error() for errors.
std::optional<Inode> inode_of(const std::filesystem::path& path);

// Identifies one version of a file. Replacing the file changes the inode, and rewriting it in place changes the
// modification time.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;  // nanoseconds since the Unix epoch

  bool operator==(const FileIdentity&) const = default;
};

// A handle of an open folder. Reads through the handle always use the folder that was opened, even if the path now
// refers to another folder. Thread-safe.
class OpenFolder {
 public:
  // Throws Damaged if `path` is not a folder. See throw_system_error() for other errors.
  explicit OpenFolder(std::filesystem::path path);
  ~OpenFolder();
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Returns std::nullopt if the folder does not contain the file. See throw_system_error() for errors.
  std::optional<FileIdentity> find(const std::string& name) const;
  bool holds(const std::string& name) const { return find(name).has_value(); }
  // Opens a file in the folder for reading. See throw_system_error() for errors.
  File open(const std::string& name) const;

  // Changes to the folder path and to the opened files since they were opened.
  enum class Change {
    kNone,
    kReplaced,   // the path refers to another folder
    kRemoved,    // the path does not exist
    kRewritten,  // an opened file was modified, replaced or removed
  };
  Change change() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  mutable std::mutex mutex_;
  mutable std::map<std::string, FileIdentity> opened_;  // identity of each file at the first open
};

// Returns "was replaced", "was removed", "was rewritten", or an empty string for kNone.
const char* name_of(OpenFolder::Change change);

}  // namespace mpzero::io
