#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <vector>

#include "io/bytes/aligned_buffers.hpp"
#include "io/files/file_system.hpp"
#include "io/files/write_pace.hpp"

namespace mpzero::io {

// A large file that is written once, sequentially, at the full disk bandwidth. Several threads write large aligned
// pieces and bypass the page cache if the file system supports O_DIRECT. Data that is aligned to kAlignment in memory
// and in the file is written without a copy.
//
// See throw_system_error() for errors. After an error, the caller must discard the file.
class OutputFile {
 public:
  // Alignment, in bytes, of memory and file offsets for direct writes.
  static constexpr int64_t kAlignment = kPageBytes;
  // Maximum size of one write, in bytes. A chunk is small enough that the data stays in the CPU cache between hashing
  // and writing, and large enough that a few threads saturate a disk.
  static constexpr int64_t kChunkBytes = 2 << 20;

  struct Options {
    // Final size of the file in bytes, or 0 if unknown. The space is allocated in advance to detect a full disk before
    // the first write.
    int64_t expected_size = 0;
    int threads = 0;     // number of writing threads; 0 selects enough to saturate one disk
    bool direct = true;  // bypass the page cache if possible
    // NOLINTNEXTLINE(readability-redundant-member-init): avoids gcc's -Wmissing-field-initializers
    std::stop_token stop{};     // append() throws Failure after a stop request
    WritePace* pace = nullptr;  // limits the write rate; unlimited if null
  };
  // Creates the file or truncates an existing file.
  OutputFile(std::filesystem::path path, const Options& options, FileSystem& files = disk());
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Bytes to append. If `checksums` is not empty, append() stores one checksum per kChecksumBlockBytes of data in
  // `checksums`. The last block may be shorter.
  struct Piece {
    std::span<const std::byte> bytes;
    std::span<uint64_t> checksums;
  };
  // Appends the pieces to the file. Returns when the caller may reuse the memory of the pieces.
  void append(std::span<const Piece> pieces);
  void append(std::span<const std::byte> bytes);
  int64_t size() const { return size_; }

  // Writes the remaining bytes and syncs the file.
  void finish();

 private:
  struct Parts;
  struct Task;

  static std::vector<Task> divide(const Parts& parts, int64_t begin, int64_t end);
  void write_block(const Parts& parts, const Task& task);
  // Writes at most kChunkBytes bytes of `parts`. Uses an aligned buffer unless `in_place` is true.
  void write_pages(const Parts& parts, int64_t from, int64_t to, bool in_place);
  void check_stop() const;
  void write_all(int64_t offset, std::span<const std::byte> bytes);
  // Completes an O_DIRECT write that ended within a page, or throws the system error.
  void write_through_cache(int64_t offset, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  FileSystem& files_;
  Options options_;
  int descriptor_ = -1;
  bool direct_ = false;
  int64_t size_ = 0;              // bytes appended
  std::vector<std::byte> carry_;  // unwritten bytes after the last multiple of kAlignment
  AlignedBuffers buffers_{kChunkBytes};
};

}  // namespace mpzero::io
