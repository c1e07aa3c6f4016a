#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

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

}  // namespace mpzero::io
