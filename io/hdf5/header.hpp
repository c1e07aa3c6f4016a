#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Bounds-checked reads of metadata that the HDF5 library reads unchecked. Version 1.10 follows sizes and addresses
// without bounds checks: one flipped bit in a string heap, or in a dataset's layout, crashes or hangs it, and neither
// has a checksum in files from before version 1.10. The formats are those of the HDF5 File Format Specification
// 3.0.
namespace mpzero::io::hdf5 {

// Location of an object as found by the library: its header begins at byte `base + header` of the file.
struct ObjectPlace {
  int descriptor = -1;                 // of the open file, or -1
  std::span<const std::byte> image{};  // the full file, if there is no descriptor
  uint64_t base = 0;                   // bytes before the HDF5 file (its user block)
  uint64_t header = 0;
};

// The value of a scalar text attribute of variable length (III.E "Global Heap", IV.A.2.m "The Attribute Message").
// Attributes in dense storage are not read. Throws UserError naming `file` and `name`.
std::string read_variable_text(const ObjectPlace& place, const std::filesystem::path& file, const std::string& name);

// Throws UserError naming `file` and `name` if the library must not open the dataset at `place`: if its chunks
// (IV.A.2.i "The Data Layout Message") have no elements, a rank other than the dataset's, or more than 1 GiB.
void check_layout(const ObjectPlace& place, const std::filesystem::path& file, const std::string& name);

// Describes what is wrong with the bytes. The functions above turn it into a sentence.
struct Malformed {
  std::string_view what;
};

// Reads values from the front of a byte range, never past its end.
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
  // A number of `size` bytes, at most 8.
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

// The bytes of a file, up to its end.
class FileBytes {
 public:
  FileBytes(const ObjectPlace& place, const std::filesystem::path& file);
  // `size` bytes at `offset` from the beginning of the HDF5 file. Throws Malformed{what} if they are not in the file or
  // are more than 64 MiB.
  std::vector<std::byte> read(uint64_t offset, uint64_t size, std::string_view what) const;
  uint64_t left(uint64_t offset) const;  // after `offset`

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

// The messages of the object's header, of version 1 or 2, in order. Omits shared messages (stored elsewhere). Throws
// Malformed.
std::vector<Message> read_messages(const FileBytes& bytes, uint64_t header);

}  // namespace mpzero::io::hdf5
