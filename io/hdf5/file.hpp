#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

// A small RAII wrapper around the HDF5 C library. Error messages contain the file and the object, and end with the
// error text of the system or of HDF5. HDF5's own error printing is disabled. The HDF5 library in Linux distributions
// is not thread-safe, so every call locks a process-wide mutex. Threads may use different objects concurrently, but not
// the same object.
//
// Opening and reading throw UserError, for example if the file is missing, truncated or not an HDF5 file. System errors
// are reported with throw_system_error(). Failure is thrown for other write errors.
namespace mpzero::io::hdf5 {

using Id = int64_t;  // hid_t

enum class Type : uint8_t { kUint8, kUint16, kUint32, kUint64, kInt8, kInt16, kInt32, kInt64, kFloat, kDouble };

template <typename T>
concept Number =
    std::same_as<T, uint8_t> || std::same_as<T, uint16_t> || std::same_as<T, uint32_t> || std::same_as<T, uint64_t> ||
    std::same_as<T, int8_t> || std::same_as<T, int16_t> || std::same_as<T, int32_t> || std::same_as<T, int64_t> ||
    std::same_as<T, float> || std::same_as<T, double>;

template <Number T>
constexpr Type type_of() {
  if constexpr (std::same_as<T, uint8_t>) return Type::kUint8;
  if constexpr (std::same_as<T, uint16_t>) return Type::kUint16;
  if constexpr (std::same_as<T, uint32_t>) return Type::kUint32;
  if constexpr (std::same_as<T, uint64_t>) return Type::kUint64;
  if constexpr (std::same_as<T, int8_t>) return Type::kInt8;
  if constexpr (std::same_as<T, int16_t>) return Type::kInt16;
  if constexpr (std::same_as<T, int32_t>) return Type::kInt32;
  if constexpr (std::same_as<T, int64_t>) return Type::kInt64;
  if constexpr (std::same_as<T, float>) return Type::kFloat;
  if constexpr (std::same_as<T, double>) return Type::kDouble;
}

// Owns one open HDF5 object.
class Handle {
 public:
  using Close = int (*)(Id);

  Handle() = default;
  Handle(Id id, Close close) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept;

  Id id() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  // Closes the object. Returns false on error.
  bool reset() noexcept;

 private:
  Id id_ = -1;
  Close close_ = nullptr;
};

// An object with attributes: a dataset or a group.
class Node {
 public:
  const std::filesystem::path& file() const { return file_; }
  const std::string& name() const { return name_; }  // within the file, e.g. "/tokens"

  bool has_attribute(const std::string& name) const;
  template <Number T>
  T attribute(const std::string& name) const {
    T value{};
    read_attribute(name, type_of<T>(), &value, 1);
    return value;
  }
  // Reads a string of fixed or variable length, ASCII or UTF-8, up to 64 MiB. The file must be open for reading.
  std::string text_attribute(const std::string& name) const;
  template <Number T>
  std::vector<T> array_attribute(const std::string& name) const {
    std::vector<T> values(attribute_size(name));
    if (!values.empty()) read_attribute(name, type_of<T>(), values.data(), values.size());
    return values;
  }

  // Creates or replaces the attribute.
  template <Number T>
  void set_attribute(const std::string& name, T value) {
    write_attribute(name, type_of<T>(), &value, 1, /*scalar=*/true);
  }
  template <Number T>
  void set_attribute(const std::string& name, std::span<const T> values) {
    write_attribute(name, type_of<T>(), values.data(), values.size(), /*scalar=*/false);
  }
  // Creates or replaces a UTF-8 string attribute of any length. `text` must not contain a null byte.
  void set_attribute(const std::string& name, const std::string& text);
  void set_attribute(const std::string& name, const char* text) { set_attribute(name, std::string(text)); }

 protected:
  Node(Handle handle, std::filesystem::path file, std::string name)
      : handle_(std::move(handle)), file_(std::move(file)), name_(std::move(name)) {}
  std::string where() const;  // "/tokens of data/train.h5"

  Handle handle_;
  std::filesystem::path file_;
  std::string name_;

 private:
  size_t attribute_size(const std::string& name) const;
  void read_attribute(const std::string& name, Type type, void* out, size_t count) const;
  void write_attribute(const std::string& name, Type type, const void* values, size_t count, bool scalar);
};

class Dataset : public Node {
 public:
  const std::vector<uint64_t>& shape() const { return shape_; }
  uint64_t size() const;  // elements
  size_t element_size() const { return element_size_; }
  // Returns true if the stored type is T, in either byte order.
  template <Number T>
  bool holds() const {
    return holds(type_of<T>());
  }

  // Reads elements [begin, begin + out.size()) of a one-dimensional dataset, converted to T.
  template <Number T>
  void read(uint64_t begin, std::span<T> out) const {
    const uint64_t start[] = {begin}, count[] = {out.size()};
    read_slab(start, count, type_of<T>(), out.data(), out.size(), /*verify=*/true);
  }
  // Reads elements without verifying HDF5's fletcher32 checksums. The caller must verify the data with a different
  // checksum.
  template <Number T>
  void read_unverified(uint64_t begin, std::span<T> out) const {
    const uint64_t start[] = {begin}, count[] = {out.size()};
    read_slab(start, count, type_of<T>(), out.data(), out.size(), /*verify=*/false);
  }
  // Reads a row-major hyperslab of `count` elements from `start`. `start` and `count` have one entry per dimension.
  template <Number T>
  void read(std::span<const uint64_t> start, std::span<const uint64_t> count, std::span<T> out) const {
    read_slab(start, count, type_of<T>(), out.data(), out.size(), /*verify=*/true);
  }
  // Throws UserError if any of the elements [begin, begin + count) of a one-dimensional dataset was never written.
  // read() would return zeros for these elements.
  void check_written(uint64_t begin, uint64_t count) const;
  template <Number T>
  void write(uint64_t begin, std::span<const T> values) {
    const uint64_t start[] = {begin}, count[] = {values.size()};
    write_slab(start, count, type_of<T>(), values.data(), values.size());
  }
  template <Number T>
  void write(std::span<const uint64_t> start, std::span<const uint64_t> count, std::span<const T> values) {
    write_slab(start, count, type_of<T>(), values.data(), values.size());
  }

 private:
  friend class Group;
  Dataset(Handle handle, std::filesystem::path file, std::string name);
  bool holds(Type type) const;
  Handle select(std::span<const uint64_t> start, std::span<const uint64_t> count, size_t size) const;
  void read_slab(std::span<const uint64_t> start, std::span<const uint64_t> count, Type type, void* out, size_t size,
                 bool verify) const;
  void write_slab(std::span<const uint64_t> start, std::span<const uint64_t> count, Type type, const void* values,
                  size_t size);

  std::vector<uint64_t> shape_;
  std::vector<uint64_t> chunk_;  // elements per dimension; empty if not chunked
  size_t element_size_ = 0;
};

class Group : public Node {
 public:
  bool contains(const std::string& name) const;
  std::vector<std::string> names() const;  // direct children, sorted
  Dataset dataset(const std::string& name) const;
  Group group(const std::string& name) const;

  Group create_group(const std::string& name);
  // Creates a contiguous dataset, or a chunked dataset if `chunk` is not empty. `name` may contain dots but no slashes.
  template <Number T>
  Dataset create_dataset(const std::string& name, std::span<const uint64_t> shape,
                         std::span<const uint64_t> chunk = {}) {
    return create_dataset(name, type_of<T>(), shape, chunk);
  }
  template <Number T>
  Dataset create_dataset(const std::string& name, uint64_t size) {
    return create_dataset(name, type_of<T>(), std::span<const uint64_t>(&size, 1), {});
  }
  // Creates a contiguous dataset and allocates its space without writing values. Returns the offset of the first byte
  // in the file, or -1 if the dataset has no elements. After this file is closed, several threads can write the values
  // at this offset with plain file I/O, in native byte order.
  template <Number T>
  int64_t reserve_dataset(const std::string& name, std::span<const uint64_t> shape) {
    return reserve_dataset(name, type_of<T>(), shape);
  }

 protected:
  using Node::Node;

 private:
  Dataset create_dataset(const std::string& name, Type type, std::span<const uint64_t> shape,
                         std::span<const uint64_t> chunk);
  int64_t reserve_dataset(const std::string& name, Type type, std::span<const uint64_t> shape);
  std::string path_of(const std::string& name) const;
};

// An open HDF5 file. As a Group, the object represents the root group of the file. The file must outlive all objects
// opened from it.
class File : public Group {
 public:
  // Creates or truncates the file. Use a temporary name and rename the file after close(). Datasets of at least
  // `alignment` bytes are aligned to `alignment` in the file.
  static File create(const std::filesystem::path& path, uint64_t alignment = 1);
  // Opens the file for reading. Does not lock the file because shared file systems often lack file locks.
  static File open(const std::filesystem::path& path);

  // Opens a copy of `bytes` as an in-memory file for reading. `path`: path for messages.
  static File open_image(const std::filesystem::path& path, std::span<const std::byte> bytes);

  // Returns HDF5's file descriptor, which is valid for the lifetime of this object.
  int descriptor() const;

  // Flushes all data to the operating system without fsync and closes the file. Throws Failure on error. Without
  // close(), the destructor may lose written data silently.
  void close();

 private:
  File(Handle handle, Handle root, std::filesystem::path path);
  Handle file_handle_;
};

}  // namespace mpzero::io::hdf5
