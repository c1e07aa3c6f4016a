#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "io/bytes/aligned_buffers.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {

// A large file that is read once, in large pieces, from several threads. If the file system supports O_DIRECT, reads
// bypass the page cache, which makes them several times faster.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path) : InputFile(File::open_for_reading(path)) {}
  explicit InputFile(File file);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  // Returns the underlying file, for small reads and for the size and path of the file.
  const File& file() const { return file_; }
  // See File::read().
  void read(int64_t offset, std::span<std::byte> out) const;

 private:
  bool read_direct(int64_t offset, std::span<std::byte> out) const;

  File file_;
  int direct_ = -1;
  std::unique_ptr<AlignedBuffers> buffers_;
};

}  // namespace mpzero::io
