#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace mpzero::io {

// The calls that change what lies on a disk. All that must survive a crash goes through them, so that a test can lose
// power, fill the disk or break it at any one of them. Each returns 0 or an errno, as the system call of its name does;
// one that was interrupted is repeated by the caller.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // `flags` as open(2) takes them.
  virtual int open(const std::filesystem::path& path, int flags, int& descriptor) = 0;
  virtual void close(int descriptor) noexcept = 0;
  // Writes at least one byte unless it fails.
  virtual int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) = 0;
  // Makes the file `size` bytes long and sets that much of the disk aside.
  virtual int reserve(int descriptor, int64_t size) = 0;
  virtual int resize(int descriptor, int64_t size) = 0;
  // Of a file its contents, of a folder its entries.
  virtual int sync(int descriptor) = 0;
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  // Swaps two names in one step.
  virtual int exchange(const std::filesystem::path& a, const std::filesystem::path& b) = 0;
  virtual int make_folder(const std::filesystem::path& folder) = 0;
  virtual int remove_file(const std::filesystem::path& path) = 0;
  virtual int remove_folder(const std::filesystem::path& empty_folder) = 0;
};

// The system's own calls.
FileSystem& disk();

}  // namespace mpzero::io
