#include "io/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "io/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLockName = ".lock";
constexpr int64_t kMaxOwnerBytes = 4096;
constexpr std::chrono::milliseconds kPause(50);

std::string this_process() { return fmt::format("process {} on {}", ::getpid(), host_name()); }

}  // namespace

FolderLock::FolderLock(const fs::path& folder, std::chrono::milliseconds patience) {
  const fs::path path = folder / kLockName;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_system_error("open", path, errno);
  const auto start = std::chrono::steady_clock::now();
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;
    if (std::chrono::steady_clock::now() - start >= patience) {
      ::close(descriptor_);
      throw_user_error(
          "another run ({}) is at work in {}: wait until it has ended or stop it, or give this run another "
          "--checkpoint_dir",
          read_text_file(path, kMaxOwnerBytes), folder.string());
    }
    std::this_thread::sleep_for(kPause);
  }
  // For the sentence above only: whoever cannot write it is locked all the same.
  const std::string owner = this_process();
  if (::ftruncate(descriptor_, 0) == 0) {
    [[maybe_unused]] const ssize_t written = ::pwrite(descriptor_, owner.data(), owner.size(), 0);
  }
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace mpzero::io
