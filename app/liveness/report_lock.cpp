#include "app/liveness/report_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace mpzero {
namespace {

// Whether the name still is that of the open file: its last holder may have removed it since.
bool is_at(const std::filesystem::path& path, const Descriptor& file) {
  struct stat named {};
  struct stat opened {};
  return stat(path.c_str(), &named) == 0 && fstat(file.get(), &opened) == 0 && named.st_dev == opened.st_dev &&
         named.st_ino == opened.st_ino;
}

}  // namespace

ReportLock::ReportLock(const std::filesystem::path& file, std::chrono::milliseconds limit)
    : path_(file.string() + ".lock") {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    Descriptor one(open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!one) return;
    const bool is_locked = flock(one.get(), LOCK_EX | LOCK_NB) == 0;
    if (!is_locked && errno != EWOULDBLOCK && errno != EINTR) return;
    if (is_locked && is_at(path_, one)) {
      held_ = std::move(one);
      return;
    }
    if (std::chrono::steady_clock::now() - start >= limit) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

ReportLock::~ReportLock() {
  // While it is held nobody else removes the file, or holds another of this name.
  std::error_code none;
  if (held_) std::filesystem::remove(path_, none);
}

}  // namespace mpzero
