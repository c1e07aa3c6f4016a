#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "io/bytes/checksum.hpp"
#include "io/files/atomic_file.hpp"
#include "io/torch_save/pickle_value.hpp"

namespace mpzero::io {

// A file in the archive: `size` uncompressed bytes at byte `offset`.
struct ZipRecord {
  std::string name;
  int64_t offset = 0;
  int64_t size = 0;
  uint32_t crc32 = 0;
};

// The central directory of a ZIP or ZIP64 archive without compression (APPNOTE.TXT 6.3.10). read_zip_directory() checks
// all offsets and lengths against the file size and all names against the local headers. Records must not overlap.
// Throws UserError if the archive is invalid.
struct ZipDirectory {
  std::map<std::string, ZipRecord> records;
  uint64_t checksum = 0;  // XXH3-64 from the beginning of the central directory to the end of the file
};
ZipDirectory read_zip_directory(const File& file);

// A file that torch.save wrote. The constructor reads and verifies the pickle, but not the storages. Thread-safe.
class TorchZipReader {
 public:
  explicit TorchZipReader(const std::filesystem::path& path) : TorchZipReader(File::open_for_reading(path)) {}
  explicit TorchZipReader(File file);

  const std::filesystem::path& path() const { return file_.path(); }
  // Returns the XXH3-64 of all bytes from the ZIP central directory to the end of the file. The central directory
  // contains the CRC-32 of each record, so equal checksums imply equal contents.
  uint64_t directory_checksum() const { return directory_checksum_; }
  pickle::Value root() const { return pickle::root_of(document_); }

  // Reads elements [begin, begin + out.size()) of a tensor of this archive as fp32. Throws UserError if the storage is
  // missing or has a different length.
  void read(const pickle::Tensor& tensor, int64_t begin, std::span<float> out);
  // Throws UserError if the tensor's storage is missing or has a different length.
  void check(const pickle::Tensor& tensor) const { storage_of(tensor); }

  // Returns one line per storage that was at least partly read: the key and the checksums of the ranges.
  std::vector<std::string> checksums_of_what_was_read() const;
  // Compares the storages in `lines` with the archive's checksums and reads ranges that are not covered. `lines` may
  // come from several processes, each of which read a part. Throws UserError if a checksum differs.
  void verify(std::span<const std::string> lines) const;
  // Reads and verifies all records.
  void verify() const;

 private:
  const ZipRecord& storage_of(const pickle::Tensor& tensor) const;

  TorchZipReader(ZipDirectory directory, File file);

  File file_;
  uint64_t directory_checksum_;
  std::map<std::string, ZipRecord> records_;
  std::string prefix_;  // common prefix of all names: "archive/"
  pickle::Document document_;
  mutable std::mutex mutex_;
  std::map<std::string, RangeChecksums> read_;  // by storage key
};

}  // namespace mpzero::io
