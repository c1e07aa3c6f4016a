#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

namespace mpzero::io {

// Tells a file or folder from others that have its name: renaming keeps it. One that is removed gives its inode to the
// next, unless it is held open.
struct Inode {
  dev_t device = 0;
  ino_t number = 0;
  bool operator==(const Inode&) const = default;
};

// Of what has this name itself, be it a link; nothing where there is none. Throws through throw_system_error where the
// system does not tell.
std::optional<Inode> inode_of(const std::filesystem::path& path);

}  // namespace mpzero::io
