#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/files/atomic_file.hpp"

namespace mpzero::io {

// The plan of a file that torch.load reads. The position of each storage is known before any is written, so several
// threads and processes can write their storages at the same time, and nothing is held in memory.
//
// Order of use: create the file, resize() it to file_bytes(), write every storage at storage_offset(), then call
// write_rest() with the storages' checksums.
class TorchZipLayout {
 public:
  // Storages of the pickle have the keys "0", "1", ... in this order. `archive` is the folder's name in the archive;
  // torch.save uses the file's stem.
  TorchZipLayout(const std::string& archive, std::string pickle, std::span<const int64_t> storage_bytes);

  int64_t storage_offset(size_t storage) const { return records_[first_storage_ + storage].offset; }
  int64_t storage_bytes(size_t storage) const { return records_[first_storage_ + storage].bytes; }
  size_t num_storages() const { return num_storages_; }
  int64_t file_bytes() const { return file_bytes_; }

  // Writes everything except the storages: headers, the pickle, the directory. `checksums`: the CRC-32 of each storage.
  // Returns the value of TorchZipReader::directory_checksum() for the file.
  uint64_t write_rest(File& file, std::span<const uint32_t> checksums) const;

 private:
  struct Record {
    std::string name;
    std::string content;  // empty: a storage
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
