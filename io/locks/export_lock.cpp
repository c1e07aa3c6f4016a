#include "io/locks/export_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kExportLockName = ".zero_to_fp32.lock";
constexpr size_t kMaxExportOwnerBytes = 512;

std::string this_process() { return fmt::format("process {} on {}", ::getpid(), host_name()); }

// As recorded in the file, right after the lock was taken.
std::string owner_in(int descriptor) {
  std::string text(kMaxExportOwnerBytes, '\0');
  const ssize_t size = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text.empty() ? "an unidentified process" : text;
}

}  // namespace

int ExportLock::try_flock(int descriptor) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

ExportLock::ExportLock(const fs::path& folder, FileSystem& files, const LockCall& lock, std::optional<LockReach> reach)
    : files_(files), path_(folder / kExportLockName) {
  const bool is_complete = reach.value_or(lock_reach_of(folder)) == LockReach::kAll;
  const LockCall no_locks = [](int) { return ENOLCK; };
  while (!try_to_take(folder, is_complete ? lock : no_locks)) {
  }
  // Only used in the message to other processes. If it cannot be written, the lock is still held.
  const std::string owner = this_process();
  size_t written = 0;
  if (files_.resize(descriptor_, 0) == 0) files_.write(descriptor_, 0, std::as_bytes(std::span(owner)), written);
}

bool ExportLock::try_to_take(const fs::path& folder, const LockCall& lock) {
  // Symbolic links are not followed, because the file is written to.
  int error = files_.open(path_, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, descriptor_);
  const bool made = error == 0;
  if (error == EEXIST) error = files_.open(path_, O_RDWR | O_NOFOLLOW, descriptor_);
  if (error == ENOENT && fs::is_directory(folder)) return false;
  if (error != 0) throw_system_error("create", path_, error);

  error = lock(descriptor_);
  const bool has_locks = error == 0 || error == EWOULDBLOCK;
  if (error == 0 ? is_named() : !has_locks && made) return true;
  const std::string owner = owner_in(descriptor_);
  files_.close(descriptor_);
  descriptor_ = -1;
  if (error == 0) return false;
  if (has_locks) {
    throw_user_error("another conversion ({}) is writing to {}: wait until it ends, or choose another OUTPUT_DIR",
                     owner, folder.string());
  }
  throw_user_error(
      "another conversion ({}) is writing to {}, or was killed there: wait until it ends, choose another OUTPUT_DIR, "
      "or, if that process is no longer running, remove {}",
      owner, folder.string(), path_.string());
}

bool ExportLock::is_named() {
  struct stat open_file {};
  struct stat named {};
  if (::fstat(descriptor_, &open_file) != 0 || ::stat(path_.c_str(), &named) != 0) {
    const int error = errno;
    if (error == ENOENT) return false;
    // Throw instead of retrying forever.
    files_.close(std::exchange(descriptor_, -1));
    throw_system_error("look for", path_, error);
  }
  return open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

ExportLock::~ExportLock() {
  if (descriptor_ < 0) return;
  files_.remove_file(path_);
  files_.close(descriptor_);
}

}  // namespace mpzero::io
