#include "io/files/inode.hpp"

#include <sys/stat.h>

#include <cerrno>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {

std::optional<Inode> inode_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return Inode{status.st_dev, status.st_ino};
  if (errno != ENOENT) throw_system_error("look for", path, errno);
  return std::nullopt;
}

}  // namespace mpzero::io
