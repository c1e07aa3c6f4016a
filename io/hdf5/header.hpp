#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Bounds-checked reads of HDF5 metadata. HDF5 1.10 does not check all sizes and addresses, so a flipped bit in a string
// heap or a dataset layout can crash or hang the library. Files from versions before 1.10 have no checksums for this
// metadata. See the HDF5 File Format Specification 3.0.
namespace mpzero::io::hdf5 {

// Location of an object in a file. The object header begins at byte `base + header`.
struct ObjectPlace {
  int descriptor = -1;                 // file descriptor, or -1
  std::span<const std::byte> image{};  // full file contents if descriptor is -1
  uint64_t base = 0;                   // size of the user block in bytes
  uint64_t header = 0;
};

// Returns the value of a scalar variable-length string attribute (III.E "Global Heap", IV.A.2.m "The Attribute
// Message"). Does not support dense attribute storage. Throws UserError if the metadata is invalid.
std::string read_variable_text(const ObjectPlace& place, const std::filesystem::path& file, const std::string& name);

// Throws UserError if it is not safe to open the dataset with the library: if its chunks (IV.A.2.i "The Data Layout
// Message") are empty, have a different number of dimensions than the dataset, or are larger than 1 GiB.
void check_layout(const ObjectPlace& place, const std::filesystem::path& file, const std::string& name);

// Internal exception for invalid metadata. read_variable_text() and check_layout() convert Malformed to UserError.
struct Malformed {
  std::string_view what;
};

// Bounds-checked sequential reader of a byte range.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  size_t left() const { return bytes_.size(); }
  std::span<const std::byte> bytes(uint64_t count) {
    if (count > bytes_.size()) throw Malformed{what_};
    const auto taken = bytes_.first(static_cast<size_t>(count));
    bytes_ = bytes_.subspan(static_cast<size_t>(count));
    return taken;
  }
  template <typename T>
  T value() {
    T result;
    std::memcpy(&result, bytes(sizeof result).data(), sizeof result);
    return result;
  }
  // Reads an unsigned little-endian integer of `size` bytes, at most 8.
  uint64_t value_of(size_t size) {
    uint64_t result = 0;
    if (size > sizeof result) throw Malformed{what_};
    std::memcpy(&result, bytes(size).data(), size);
    return result;
  }
  void expect(std::string_view signature) {
    if (std::memcmp(bytes(signature.size()).data(), signature.data(), signature.size()) != 0) throw Malformed{what_};
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view what_;
};

// Bounds-checked access to the bytes of a file.
class FileBytes {
 public:
  FileBytes(const ObjectPlace& place, const std::filesystem::path& file);
  // Reads `size` bytes at `offset` from the beginning of the HDF5 data. Throws Malformed{what} if the range exceeds the
  // file or 64 MiB.
  std::vector<std::byte> read(uint64_t offset, uint64_t size, std::string_view what) const;
  uint64_t left(uint64_t offset) const;  // bytes after `offset`

 private:
  int descriptor_;
  std::span<const std::byte> image_;
  uint64_t base_;
  std::filesystem::path file_;
  uint64_t size_ = 0;
};

struct Message {
  enum Type : uint16_t { kDataspace = 0x01, kDatatype = 0x03, kLayout = 0x08, kAttribute = 0x0C, kContinuation = 0x10 };
  uint16_t type = 0;
  std::vector<std::byte> body;
};

// Returns the messages of an object header of version 1 or 2, in order. Omits shared messages, which are stored outside
// of the header. Throws Malformed if the header is invalid.
std::vector<Message> read_messages(const FileBytes& bytes, uint64_t header);

}  // namespace mpzero::io::hdf5
