#include "io/files/open_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
std::optional<Inode> inode_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return Inode{status.st_dev, status.st_ino};
  if (errno != ENOENT) throw_system_error("access", path, errno);
  return std::nullopt;
}

namespace {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

bool is_absent(int error_number) { return error_number == ENOENT || error_number == ENOTDIR; }

FileIdentity identity_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .modified_ns = status.st_mtim.tv_sec * kNanosecondsPerSecond + status.st_mtim.tv_nsec};
}

}  // namespace

OpenFolder::OpenFolder(std::filesystem::path path) : path_(std::move(path)) {
  do {
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ >= 0) return;
  if (is_absent(errno)) {
    throw Damaged(fmt::format(
        "{} is not a folder; use the folder of a checkpoint, e.g. checkpoints/qwen3_0_6b-500steps", path_.string()));
  }
  throw_system_error("open folder", path_, errno);
}

OpenFolder::~OpenFolder() { ::close(descriptor_); }

std::optional<FileIdentity> OpenFolder::find(const std::string& name) const {
  struct stat status {};
  if (::fstatat(descriptor_, name.c_str(), &status, 0) == 0) return identity_of(status);
  if (is_absent(errno)) return std::nullopt;
  throw_system_error("access", path_ / name, errno);
}

File OpenFolder::open(const std::string& name) const {
  File file = File::open_in(descriptor_, name, path_ / name);
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) throw_system_error("access", file.path(), errno);
  const std::scoped_lock lock(mutex_);
  opened_.emplace(name, identity_of(status));
  return file;
}

OpenFolder::Change OpenFolder::change() const {
  const std::scoped_lock lock(mutex_);
  bool all_there = true;
  for (const auto& [name, identity] : opened_) {
    struct stat status {};
    const bool found = ::fstatat(descriptor_, name.c_str(), &status, 0) == 0;
    if (found && identity_of(status) != identity) return Change::kRewritten;
    all_there = all_there && found;
  }
  struct stat named {};
  struct stat held {};
  if (::stat(path_.c_str(), &named) != 0) {
    if (is_absent(errno)) return Change::kRemoved;
    throw_system_error("access", path_, errno);
  }
  // fstat fails if the folder was removed on the file server.
  if (::fstat(descriptor_, &held) != 0) return Change::kReplaced;
  if (named.st_dev != held.st_dev || named.st_ino != held.st_ino) return Change::kReplaced;
  return all_there ? Change::kNone : Change::kRewritten;
}

const char* name_of(OpenFolder::Change change) {
  switch (change) {
    case OpenFolder::Change::kNone:
      return "";
    case OpenFolder::Change::kReplaced:
      return "was replaced";
    case OpenFolder::Change::kRemoved:
      return "was removed";
    case OpenFolder::Change::kRewritten:
      return "was rewritten";
  }
  throw_failure("unknown folder change {}", static_cast<int>(change));
}

}  // namespace mpzero::io
