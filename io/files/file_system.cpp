#include "io/files/file_system.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr mode_t kFileMode = 0666;    // before the umask
constexpr mode_t kFolderMode = 0777;  // before the umask

int error_of(int result) { return result == 0 ? 0 : errno; }

class Disk final : public FileSystem {
 public:
  int open(const fs::path& path, int flags, int& descriptor) override {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, kFileMode);
    return descriptor < 0 ? errno : 0;
  }
  void close(int descriptor) noexcept override { ::close(descriptor); }
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    const ssize_t n = ::pwrite(descriptor, bytes.data(), bytes.size(), offset);
    written = n < 0 ? 0 : static_cast<size_t>(n);
    return n < 0 ? errno : 0;
  }
  int reserve(int descriptor, int64_t size) override { return error_of(::fallocate(descriptor, 0, 0, size)); }
  int resize(int descriptor, int64_t size) override { return error_of(::ftruncate(descriptor, size)); }
  int sync(int descriptor) override { return error_of(::fsync(descriptor)); }
  int rename(const fs::path& from, const fs::path& to) override {
    return error_of(std::rename(from.c_str(), to.c_str()));
  }
  int exchange(const fs::path& a, const fs::path& b) override {
    return error_of(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
  }
  int make_folder(const fs::path& folder) override { return error_of(::mkdir(folder.c_str(), kFolderMode)); }
  int remove_file(const fs::path& path) override { return error_of(::unlink(path.c_str())); }
  int remove_folder(const fs::path& empty_folder) override { return error_of(::rmdir(empty_folder.c_str())); }
};

}  // namespace

FileSystem& disk() {
  static Disk instance;
  return instance;
}

}  // namespace mpzero::io
