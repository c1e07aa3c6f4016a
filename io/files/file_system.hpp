#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace mpzero::io {

// System calls that change the disk. All crash-safe writes use this interface, so that tests can simulate a power
// failure, a full disk or a disk error in any call. Functions return 0 on success or an errno. The caller retries
// interrupted calls (EINTR).
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // See open(2) for `flags`.
  virtual int open(const std::filesystem::path& path, int flags, int& descriptor) = 0;
  virtual void close(int descriptor) noexcept = 0;
  // Writes at least one byte or fails.
  virtual int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) = 0;
  // Sets the file size to `size` bytes and allocates the disk space.
  virtual int reserve(int descriptor, int64_t size) = 0;
  virtual int resize(int descriptor, int64_t size) = 0;
  // Syncs the contents of a file or the entries of a folder.
  virtual int sync(int descriptor) = 0;
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  // Exchanges two paths atomically, like RENAME_EXCHANGE of renameat2(2).
  virtual int exchange(const std::filesystem::path& a, const std::filesystem::path& b) = 0;
  virtual int make_folder(const std::filesystem::path& folder) = 0;
  virtual int remove_file(const std::filesystem::path& path) = 0;
  virtual int remove_folder(const std::filesystem::path& empty_folder) = 0;
};

// Returns the implementation with real system calls.
FileSystem& disk();

}  // namespace mpzero::io
