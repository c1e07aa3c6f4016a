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

// A large file that is written once, from its beginning to its end, as fast as the disk takes it: in large aligned
// pieces, several at a time, past the system's cache where the file system allows that (O_DIRECT). What lies in memory
// at a multiple of kAlignment where it lies so in the file goes to the disk without a copy.
//
// Errors throw through throw_system_error; the file is then to be given up.
class OutputFile {
 public:
  // Of memory and of places in the file.
  static constexpr int64_t kAlignment = kPageBytes;
  // What one call hands to the disk at most: so little that what was read to checksum it still is in a cache, and
  // enough for a few threads to keep a disk busy.
  static constexpr int64_t kChunkBytes = 2 << 20;

  struct Options {
    // How large the file will be, where that is known: the disk's space is set aside at once, so that a full disk is
    // found before anything is written.
    int64_t expected_size = 0;
    int threads = 0;     // that write at a time; 0: a number that suffices for a disk
    bool direct = true;  // past the system's cache, if possible
    // NOLINTNEXTLINE(readability-redundant-member-init): gcc wants one, or each designated initializer to name it
    std::stop_token stop{};     // makes append() throw Failure soon
    WritePace* pace = nullptr;  // of the contents; none: as fast as it goes
  };
  // Makes the file anew.
  OutputFile(std::filesystem::path path, const Options& options, FileSystem& files = disk());
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Bytes for the end of the file. With `checksums`, the checksum of each kChecksumBlockBytes of them (the last block
  // may be shorter) goes there.
  struct Piece {
    std::span<const std::byte> bytes;
    std::span<uint64_t> checksums;
  };
  // Returns when the bytes are no longer needed.
  void append(std::span<const Piece> pieces);
  void append(std::span<const std::byte> bytes);
  int64_t size() const { return size_; }

  // Writes what is left and returns once all of it is on the disk.
  void finish();

 private:
  struct Parts;
  struct Task;

  static std::vector<Task> divide(const Parts& parts, int64_t begin, int64_t end);
  void write_block(const Parts& parts, const Task& task);
  // At most kChunkBytes; copied first unless they can go as they lie in memory.
  void write_pages(const Parts& parts, int64_t from, int64_t to, bool in_place);
  void check_stop() const;
  void write_all(int64_t offset, std::span<const std::byte> bytes);
  // What a direct write ended within a page of: either it is written, or the system says why it cannot be.
  void write_through_cache(int64_t offset, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  FileSystem& files_;
  Options options_;
  int descriptor_ = -1;
  bool direct_ = false;
  int64_t size_ = 0;              // bytes appended
  std::vector<std::byte> carry_;  // the last of them, from the last multiple of kAlignment on
  AlignedBuffers buffers_{kChunkBytes};
};

}  // namespace mpzero::io
