#include "io/data/file_watch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/aligned_buffers.hpp"
#include "io/bytes/checksum.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace {

constexpr int64_t kSampledPages = 64;

int64_t modified_ns(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

[[noreturn]] void throw_changed(const std::filesystem::path& path, const std::string& what) {
  throw_user_error(
      "{} {} while it was being read: restore the data that the run began with and start the run again, which resumes "
      "from its last checkpoint; give other data another name",
      path.string(), what);
}

}  // namespace

FileWatch::FileWatch(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
  const struct stat now = status();
  size_ = now.st_size;
  modified_ns_ = modified_ns(now);
  num_names_ = now.st_nlink;
  sampled_ = sample();
}

void FileWatch::check() {
  const struct stat now = status();
  if (now.st_size != size_) throw_changed(path_, fmt::format("changed from {} to {} bytes", size_, now.st_size));
  if (modified_ns(now) != modified_ns_) {
    if (sample() != sampled_) throw_changed(path_, "was overwritten");
    modified_ns_ = modified_ns(now);
  }
  // A file that lost its name may still be replaced.
  if (now.st_nlink != num_names_ || now.st_nlink == 0) {
    if (was_replaced(now)) throw_changed(path_, "was replaced by another file");
    num_names_ = now.st_nlink;
  }
}

struct stat FileWatch::status() const {
  struct stat result {};
  if (::fstat(descriptor_, &result) == 0) return result;
  // A network file system no longer knows a file that was removed on another host.
  if (errno == ESTALE) throw_changed(path_, "was removed or replaced");
  throw_system_error("check the state of", path_, errno);
}

uint64_t FileWatch::sample() const {
  StreamingChecksum checksum;
  std::array<std::byte, kPageBytes> page;
  const int64_t last = std::max<int64_t>(0, size_ - kPageBytes);
  for (int64_t i = 0; i < kSampledPages; ++i) {
    // For a huge file the product would overflow.
    const int64_t offset = last / (kSampledPages - 1) * i + last % (kSampledPages - 1) * i / (kSampledPages - 1);
    ssize_t size = 0;
    do {
      size = ::pread(descriptor_, page.data(), page.size(), offset);
    } while (size < 0 && errno == EINTR);
    if (size < 0) throw_system_error("read", path_, errno);
    checksum.add(std::span(page).first(static_cast<size_t>(size)));
  }
  return checksum.value();
}

bool FileWatch::was_replaced(const struct stat& now) const {
  struct stat named {};
  // A removed name does not affect the open file.
  if (::stat(path_.c_str(), &named) != 0) return false;
  return named.st_dev != now.st_dev || named.st_ino != now.st_ino;
}

}  // namespace mpzero::io
