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

// A file in the archive: `size` uncompressed bytes, from byte `offset`.
struct ZipRecord {
  std::string name;
  int64_t offset = 0;
  int64_t size = 0;
  uint32_t crc32 = 0;
};

// The records of a ZIP archive without compression, including ZIP64, by name; see APPNOTE.TXT 6.3.10. Every offset and
// length is checked against the file's size, names are checked against the local headers, and records must not overlap.
// Throws UserError naming the file.
struct ZipDirectory {
  std::map<std::string, ZipRecord> records;
  uint64_t checksum = 0;  // XXH3-64 of all bytes from the beginning of the directory to the end of the file
};
ZipDirectory read_zip_directory(const File& file);

// A file that torch.save wrote. Opening it reads and verifies its pickle; the storages are not read. Thread-safe.
class TorchZipReader {
 public:
  explicit TorchZipReader(const std::filesystem::path& path) : TorchZipReader(File::open_for_reading(path)) {}
  explicit TorchZipReader(File file);

  const std::filesystem::path& path() const { return file_.path(); }
  // XXH3-64 of the archive's directory: of all bytes after the last record. The directory holds the checksum of each
  // record, so two archives with the same value hold the same data.
  uint64_t directory_checksum() const { return directory_checksum_; }
  pickle::Value root() const { return pickle::root_of(document_); }

  // Reads elements [begin, begin + out.size()) of the tensor, which must be in this archive, as fp32. Throws UserError
  // if the archive lacks the storage or holds one of another length.
  void read(const pickle::Tensor& tensor, int64_t begin, std::span<float> out);
  // Throws unless the archive holds the tensor's full storage.
  void check(const pickle::Tensor& tensor) const { storage_of(tensor); }

  // One line for each storage that was read, fully or partly: its key and the checksums of the ranges.
  std::vector<std::string> checksums_of_what_was_read() const;
  // Compares the storages that the lines name with the archive's checksums; reads ranges that no line covers. `lines`
  // may come from several processes that each read a part. Throws UserError naming file and storage.
  void verify(std::span<const std::string> lines) const;
  // Reads and verifies every record.
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
