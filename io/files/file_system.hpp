#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace mpzero::io {

// The system calls that change the disk. Everything that must survive a crash goes through them, so that tests can
// simulate a power failure, a full disk or a disk error at any call. Each returns 0 or an errno, like the system call
// of the same name. The caller retries interrupted calls.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // `flags` as in open(2).
  virtual int open(const std::filesystem::path& path, int flags, int& descriptor) = 0;
  virtual void close(int descriptor) noexcept = 0;
  // Writes at least one byte unless it fails.
  virtual int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) = 0;
  // Makes the file `size` bytes long and allocates that much space on the disk.
  virtual int reserve(int descriptor, int64_t size) = 0;
  virtual int resize(int descriptor, int64_t size) = 0;
  // Syncs the contents of a file, or the entries of a folder.
  virtual int sync(int descriptor) = 0;
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  // Swaps two names atomically.
  virtual int exchange(const std::filesystem::path& a, const std::filesystem::path& b) = 0;
  virtual int make_folder(const std::filesystem::path& folder) = 0;
  virtual int remove_file(const std::filesystem::path& path) = 0;
  virtual int remove_folder(const std::filesystem::path& empty_folder) = 0;
};

// The real system calls.
FileSystem& disk();

}  // namespace mpzero::io
