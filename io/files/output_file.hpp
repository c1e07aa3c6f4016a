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

// A large file that is written once, sequentially, as fast as the disk allows: in large aligned pieces, several at a
// time, bypassing the page cache if the file system supports it (O_DIRECT). Data that is aligned to kAlignment both in
// memory and in the file is written without a copy.
//
// Errors throw through throw_system_error. The file must then be discarded.
class OutputFile {
 public:
  // Alignment of memory and of file offsets.
  static constexpr int64_t kAlignment = kPageBytes;
  // Maximum size of one write: small enough that the data is still in a cache after it was checksummed, large enough
  // that a few threads keep a disk busy.
  static constexpr int64_t kChunkBytes = 2 << 20;

  struct Options {
    // The final size of the file, if known. The space is allocated up front, so that a full disk is detected before
    // anything is written.
    int64_t expected_size = 0;
    int threads = 0;     // number of writing threads; 0: enough for one disk
    bool direct = true;  // bypass the page cache, if possible
    // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
    std::stop_token stop{};     // append() soon throws Failure once it is requested
    WritePace* pace = nullptr;  // limits the write rate; null: unlimited
  };
  // Creates or truncates the file.
  OutputFile(std::filesystem::path path, const Options& options, FileSystem& files = disk());
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Bytes to append. If `checksums` is not empty, it receives the checksum of each kChecksumBlockBytes of them (the
  // last block may be shorter).
  struct Piece {
    std::span<const std::byte> bytes;
    std::span<uint64_t> checksums;
  };
  // Returns once the bytes are no longer needed.
  void append(std::span<const Piece> pieces);
  void append(std::span<const std::byte> bytes);
  int64_t size() const { return size_; }

  // Writes the remaining bytes and returns once everything is on disk.
  void finish();

 private:
  struct Parts;
  struct Task;

  static std::vector<Task> divide(const Parts& parts, int64_t begin, int64_t end);
  void write_block(const Parts& parts, const Task& task);
  // Writes at most kChunkBytes, through an aligned buffer unless `in_place`.
  void write_pages(const Parts& parts, int64_t from, int64_t to, bool in_place);
  void check_stop() const;
  void write_all(int64_t offset, std::span<const std::byte> bytes);
  // Handles a direct write that ended within a page: writes the rest, or throws the system's reason.
  void write_through_cache(int64_t offset, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  FileSystem& files_;
  Options options_;
  int descriptor_ = -1;
  bool direct_ = false;
  int64_t size_ = 0;              // bytes appended
  std::vector<std::byte> carry_;  // the unwritten end, from the last multiple of kAlignment on
  AlignedBuffers buffers_{kChunkBytes};
};

}  // namespace mpzero::io
