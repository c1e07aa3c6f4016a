#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

// A small wrapper of the HDF5 C library: handles that close themselves, and errors that name the file and the object.
// The C library of Linux distributions is not thread-safe, so every call here holds one process-wide lock: objects of
// different files may be used from different threads at the same time, one object by one thread at a time.
//
// Opening and reading throw UserError (the file is missing, truncated or not of the expected kind). Writing throws
// UserError if the user can fix it (the disk is full) and Failure otherwise. All messages end with the reason that the
// system or the library gave. The library itself prints nothing.
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
  // Closes now. Returns false if the library could not.
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
  // Fixed and variable length, ASCII and UTF-8, up to 64 MiB. The file must have been opened for reading.
  std::string text_attribute(const std::string& name) const;
  template <Number T>
  std::vector<T> array_attribute(const std::string& name) const {
    std::vector<T> values(attribute_size(name));
    if (!values.empty()) read_attribute(name, type_of<T>(), values.data(), values.size());
    return values;
  }

  // Creates the attribute or replaces it.
  template <Number T>
  void set_attribute(const std::string& name, T value) {
    write_attribute(name, type_of<T>(), &value, 1, /*scalar=*/true);
  }
  template <Number T>
  void set_attribute(const std::string& name, std::span<const T> values) {
    write_attribute(name, type_of<T>(), values.data(), values.size(), /*scalar=*/false);
  }
  // UTF-8 of any length. Must not contain a zero byte.
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
  // Whether the file holds exactly this type (either byte order).
  template <Number T>
  bool holds() const {
    return holds(type_of<T>());
  }

  // Elements [begin, begin + out.size()) of a one-dimensional dataset, converted to T.
  template <Number T>
  void read(uint64_t begin, std::span<T> out) const {
    const uint64_t start[] = {begin}, count[] = {out.size()};
    read_slab(start, count, type_of<T>(), out.data(), out.size(), /*verify=*/true);
  }
  // The same without the library's verification (fletcher32), if the dataset has one: for values with a checksum that
  // the caller verifies.
  template <Number T>
  void read_unverified(uint64_t begin, std::span<T> out) const {
    const uint64_t start[] = {begin}, count[] = {out.size()};
    read_slab(start, count, type_of<T>(), out.data(), out.size(), /*verify=*/false);
  }
  // The hyperslab of `count` elements from `start` (both with the dataset's rank), row-major.
  template <Number T>
  void read(std::span<const uint64_t> start, std::span<const uint64_t> count, std::span<T> out) const {
    read_slab(start, count, type_of<T>(), out.data(), out.size(), /*verify=*/true);
  }
  // Throws UserError naming the first of the elements [begin, begin + count) of a one-dimensional dataset that was
  // never written, which read() returns as zero. Costs one lookup in the chunk index.
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
  std::vector<uint64_t> chunk_;  // extents in elements; empty if the dataset is not stored in chunks
  size_t element_size_ = 0;
};

class Group : public Node {
 public:
  bool contains(const std::string& name) const;
  std::vector<std::string> names() const;  // of the objects directly in the group, sorted
  Dataset dataset(const std::string& name) const;
  Group group(const std::string& name) const;

  Group create_group(const std::string& name);
  // Contiguous, or in chunks of extents `chunk` if it is not empty. `name` may contain dots, not slashes.
  template <Number T>
  Dataset create_dataset(const std::string& name, std::span<const uint64_t> shape,
                         std::span<const uint64_t> chunk = {}) {
    return create_dataset(name, type_of<T>(), shape, chunk);
  }
  template <Number T>
  Dataset create_dataset(const std::string& name, uint64_t size) {
    return create_dataset(name, type_of<T>(), std::span<const uint64_t>(&size, 1), {});
  }
  // A contiguous dataset whose space in the file is allocated now and left unwritten. Returns the offset of its first
  // byte, so that the values (in the machine's byte order) can be written there with plain file calls, from several
  // threads, once this file is closed. -1 if it has no elements.
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

// An open file, which is also its root group. Objects opened from it must not outlive it.
class File : public Group {
 public:
  // Creates or truncates the file. Use a temporary name and rename it after close(). Datasets of `alignment` bytes and
  // more begin at a multiple of it in the file.
  static File create(const std::filesystem::path& path, uint64_t alignment = 1);
  // For reading, from any number of processes. No file lock is taken, since shared file systems often lack them.
  static File open(const std::filesystem::path& path);

  // For reading, from the bytes of a file, which are copied. `path` is used in messages.
  static File open_image(const std::filesystem::path& path, std::span<const std::byte> bytes);

  // The library's own file descriptor, open as long as this object exists.
  int descriptor() const;

  // Passes all data to the operating system (without fsync) and closes. Throws Failure on error. If a written file is
  // destroyed without close(), data may be lost silently.
  void close();

 private:
  File(Handle handle, Handle root, std::filesystem::path path);
  Handle file_handle_;
};

}  // namespace mpzero::io::hdf5
