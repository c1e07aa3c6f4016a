#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "app/doctor/host.hpp"
#include "app/machine/system.hpp"
#include "base/text/byte_size.hpp"

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPage = 4096;

fs::path existing(fs::path folder) {
  std::error_code error;
  folder = fs::absolute(folder, error);
  while (!fs::is_directory(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

// A temporary file. Unnamed if the file system supports O_TMPFILE, so that a killed process leaves no file.
class ProbeFile {
 public:
  explicit ProbeFile(const fs::path& folder) : descriptor_(open(folder.c_str(), O_TMPFILE | O_RDWR, 0600)) {
    if (descriptor_ >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return;
    std::string name = (folder / ".mpzero-doctor-XXXXXX").string();
    descriptor_ = mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ >= 0) unlink(name.c_str());
  }
  ~ProbeFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  ProbeFile(const ProbeFile&) = delete;
  ProbeFile& operator=(const ProbeFile&) = delete;

  bool opened() const { return descriptor_ >= 0; }

  // Writes `bytes` bytes and waits until the data is on disk. Returns 0 on success, else errno.
  int fill(int64_t bytes) {
    const std::string block(static_cast<size_t>(std::min<int64_t>(bytes, 4 << 20)), 'm');
    for (int64_t done = 0; done < bytes;) {
      const auto count = static_cast<size_t>(std::min<int64_t>(bytes - done, static_cast<int64_t>(block.size())));
      const ssize_t written = write(descriptor_, block.data(), count);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      done += written;
    }
    return fdatasync(descriptor_) == 0 ? 0 : errno;
  }

 private:
  int descriptor_;
};

Finding check_writing(const fs::path& folder, int64_t probe_bytes, int64_t free) {
  constexpr double kSlow = 200e6;
  ProbeFile file(folder);
  if (!file.opened()) {
    return failure("checkpoint_write",
                   fmt::format("cannot create a file in {}: {}", folder.string(), std::strerror(errno)));
  }
  const int64_t bytes = std::max(kPage, std::min(probe_bytes, free / 4));
  const auto start = std::chrono::steady_clock::now();
  if (const int error = file.fill(bytes); error != 0) {
    return failure("checkpoint_write", fmt::format("cannot write to {}: {}", folder.string(), std::strerror(error)));
  }
  if (bytes <= kPage) return ok("checkpoint_write", "writable");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double rate = static_cast<double>(bytes) / seconds;
  const std::string seen =
      fmt::format("{:.2f} GB/s ({} in {:.2f} s, one file per host)", rate / 1e9, bytes_text(bytes), seconds);
  if (rate < kSlow) {
    return warning(
        "checkpoint_write", seen + ": writing 1 GiB per host takes more than 5 s",
        "on Lustre, stripe the folder across more OSTs (lfs setstripe -c -1); otherwise, save to a faster disk");
  }
  return ok("checkpoint_write", seen);
}

}  // namespace

std::vector<Finding> check_storage(const fs::path& folder, int64_t probe_bytes) {
  const fs::path where = existing(folder);
  struct statvfs disk {};
  if (statvfs(where.c_str(), &disk) != 0) {
    return {failure("checkpoint_space",
                    fmt::format("the file system of {} cannot be queried: {}", where.string(), std::strerror(errno)))};
  }
  const int64_t free = static_cast<int64_t>(disk.f_frsize) * static_cast<int64_t>(disk.f_bavail);
  const std::string seen = fmt::format("{} free in {}", bytes_text(free), where.string());
  if (free < kGibi) return {failure("checkpoint_space", seen), check_writing(where, kPage, free)};
  const Finding space = free < 20 * kGibi ? warning("checkpoint_space", seen) : ok("checkpoint_space", seen);
  return {space, check_writing(where, probe_bytes, free)};
}

}  // namespace mpzero::doctor
