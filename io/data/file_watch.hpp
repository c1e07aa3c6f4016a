#pragma once

#include <cstdint>
#include <filesystem>

struct stat;

namespace mpzero::io {

// Tells whether a file that is read over hours still holds what it held when the watch began. Reads of a file that was
// cut off or overwritten meanwhile may succeed all the same: HDF5 gives zeros for what lies behind the end.
class FileWatch {
 public:
  // `descriptor` is the open file that is read, lent for as long as the watch lasts; `path` is the name it was opened
  // by.
  FileWatch(std::filesystem::path path, int descriptor);

  // To be called after reading, once a batch: one fstat as long as nothing has happened. Throws UserError where the
  // file was truncated, extended or overwritten, or where its name now belongs to another file; then what was read
  // since the last call cannot be trusted. Another time of modification alone is none of these (it keeps files from
  // being purged): a sample of 64 pages decides whether the contents are the same. Nor is another name or none, since
  // an open file lasts.
  void check();

 private:
  struct stat status() const;
  uint64_t sample() const;
  bool was_replaced(const struct stat& now) const;

  std::filesystem::path path_;
  int descriptor_;
  int64_t size_ = 0;
  uint64_t sampled_ = 0;  // checksum of the sample
  // As they were when they were last found harmless.
  int64_t modified_ns_ = 0;
  uint64_t num_names_ = 0;
};

}  // namespace mpzero::io
