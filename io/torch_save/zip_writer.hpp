#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/files/atomic_file.hpp"

namespace mpzero::io {

// The layout of a file for torch.load. Storage offsets are known in advance, so several threads and processes can write
// storages concurrently without buffering them in memory.
//
// Usage: create the file, resize() it to file_bytes(), write each storage at storage_offset(), and call write_rest()
// with the checksums of the storages.
class TorchZipLayout {
 public:
  // The storages in `pickle` must have the keys "0", "1", ... in the order of `storage_bytes`. `archive` is the name of
  // the top-level folder in the archive. torch.save uses the stem of the file name.
  TorchZipLayout(const std::string& archive, std::string pickle, std::span<const int64_t> storage_bytes);

  int64_t storage_offset(size_t storage) const { return records_[first_storage_ + storage].offset; }
  int64_t storage_bytes(size_t storage) const { return records_[first_storage_ + storage].bytes; }
  size_t num_storages() const { return num_storages_; }
  int64_t file_bytes() const { return file_bytes_; }

  // Writes the headers, the pickle and the central directory. `checksums` contains the CRC-32 of each storage. Returns
  // the value of TorchZipReader::directory_checksum() for the file.
  uint64_t write_rest(File& file, std::span<const uint32_t> checksums) const;

 private:
  struct Record {
    std::string name;
    std::string content;  // empty for a storage
    int64_t header_offset = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  void add(std::string name, std::string content, int64_t bytes);

  std::vector<Record> records_;
  size_t first_storage_ = 0;
  size_t num_storages_ = 0;
  int64_t directory_offset_ = 0;
  int64_t directory_bytes_ = 0;
  int64_t file_bytes_ = 0;
};

}  // namespace mpzero::io
