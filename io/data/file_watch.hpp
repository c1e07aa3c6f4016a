#pragma once

#include <cstdint>
#include <filesystem>

struct stat;

namespace mpzero::io {

// Detects whether a file that is read for hours still holds what it held when the watch began. Reads of a file that was
// truncated or overwritten in the meantime may succeed: HDF5 returns zeros for data past the end.
class FileWatch {
 public:
  // `descriptor`: the open file that is read, borrowed for the lifetime of the watch. `path`: the name that it was
  // opened by.
  FileWatch(std::filesystem::path path, int descriptor);

  // Call after reading, once per batch: one fstat if nothing has changed. Throws UserError if the file was truncated,
  // extended or overwritten, or if its name now refers to another file; then everything read since the last call is
  // invalid. A new modification time alone is none of these (touching a file keeps it from being purged): a sample of
  // 64 pages decides whether the contents are the same. Renaming or removing the file is harmless, since it stays open.
  void check();

 private:
  struct stat status() const;
  uint64_t sample() const;
  bool was_replaced(const struct stat& now) const;

  std::filesystem::path path_;
  int descriptor_;
  int64_t size_ = 0;
  uint64_t sampled_ = 0;  // checksum of the sample
  // Values when they were last found harmless.
  int64_t modified_ns_ = 0;
  uint64_t num_names_ = 0;
};

}  // namespace mpzero::io
