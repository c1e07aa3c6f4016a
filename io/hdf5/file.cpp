#include "io/hdf5/file.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <system_error>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/files/atomic_file.hpp"
#include "io/hdf5/header.hpp"
#include "io/hdf5/library.hpp"

namespace mpzero::io::hdf5 {
namespace {

uint64_t product(std::span<const uint64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), uint64_t{1}, std::multiplies<>());
}

Handle without_file_lock() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
  if (!access || H5Pset_file_locking(access.id(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true) < 0) {
    throw_failure("H5Pset_file_locking failed: {}", reason());
  }
  return access;
}

}  // namespace

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    reset();
    id_ = std::exchange(other.id_, -1);
    close_ = other.close_;
  }
  return *this;
}

bool Handle::reset() noexcept {
  if (id_ < 0) return true;
  const Lock lock;
  return close_(std::exchange(id_, -1)) >= 0;
}

std::string Node::where() const { return fmt::format("{} of {}", name_, file_.string()); }

Dataset::Dataset(Handle handle, std::filesystem::path file, std::string name)
    : Node(std::move(handle), std::move(file), std::move(name)) {
  const Handle space(H5Dget_space(handle_.id()), &H5Sclose);
  const Handle type(H5Dget_type(handle_.id()), &H5Tclose);
  const int rank = space ? H5Sget_simple_extent_ndims(space.id()) : -1;
  if (rank < 0 || !type) throw_user_error("cannot read the shape of {}: {}", where(), reason());
  std::vector<hsize_t> extents(static_cast<size_t>(rank));
  H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr);
  shape_.assign(extents.begin(), extents.end());
  element_size_ = H5Tget_size(type.id());
  const Handle properties(H5Dget_create_plist(handle_.id()), &H5Pclose);
  if (!properties) throw_user_error("cannot read the layout of {}: {}", where(), reason());
  if (H5Pget_layout(properties.id()) != H5D_CHUNKED) return;
  if (H5Pget_chunk(properties.id(), rank, extents.data()) != rank) {
    throw_user_error("cannot read the layout of {}: {}", where(), reason());
  }
  chunk_.assign(extents.begin(), extents.end());
}

uint64_t Dataset::size() const { return product(shape_); }

bool Dataset::holds(Type type) const {
  const Lock lock;
  const Handle stored(H5Dget_type(handle_.id()), &H5Tclose);
  const hid_t wanted = native(type);
  if (!stored || H5Tget_class(stored.id()) != H5Tget_class(wanted)) return false;
  if (H5Tget_size(stored.id()) != H5Tget_size(wanted)) return false;
  return H5Tget_class(wanted) != H5T_INTEGER || H5Tget_sign(stored.id()) == H5Tget_sign(wanted);
}

Handle Dataset::select(std::span<const uint64_t> start, std::span<const uint64_t> count, size_t size) const {
  if (start.size() != shape_.size() || count.size() != shape_.size()) {
    throw_user_error("{} has {} dimensions, expected {}", where(), shape_.size(), start.size());
  }
  if (product(count) != size) {
    throw_failure("cannot read {} elements of {} into a buffer of {} elements", product(count), where(), size);
  }
  for (size_t i = 0; i < shape_.size(); ++i) {
    if (start[i] > shape_[i] || count[i] > shape_[i] - start[i]) {
      throw_user_error("{} ends at {}, but elements {} to {} were requested: the file is too short", where(), shape_[i],
                       start[i], start[i] + count[i]);
    }
  }
  Handle space(H5Dget_space(handle_.id()), &H5Sclose);
  const std::vector<hsize_t> first(start.begin(), start.end()), extent(count.begin(), count.end());
  if (!space || (!first.empty() &&
                 H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, first.data(), nullptr, extent.data(), nullptr) < 0)) {
    throw_failure("cannot select elements of {}: {}", where(), reason());
  }
  return space;
}

void Dataset::read_slab(std::span<const uint64_t> start, std::span<const uint64_t> count, Type type, void* out,
                        size_t size, bool verify) const {
  const Lock lock;
  const Handle in_file = select(start, count, size);
  if (size == 0) return;
  const hsize_t extent = size;
  const Handle in_memory(H5Screate_simple(1, &extent, nullptr), &H5Sclose);
  const Handle transfer(H5Pcreate(H5P_DATASET_XFER), &H5Pclose);
  if (!transfer || H5Pset_edc_check(transfer.id(), verify ? H5Z_ENABLE_EDC : H5Z_DISABLE_EDC) < 0) {
    throw_failure("H5Pset_edc_check failed: {}", reason());
  }
  if (H5Dread(handle_.id(), native(type), in_memory.id(), in_file.id(), transfer.id(), out) < 0) {
    throw_not_read(where(), file_);
  }
}

void Dataset::check_written(uint64_t begin, uint64_t count) const {
  const Lock lock;
  if (shape_.size() != 1) throw_failure("{} has {} dimensions, expected 1", where(), shape_.size());
  const auto refuse = [&](uint64_t element) {
    H5Eclear2(H5E_DEFAULT);
    throw_user_error("{} is incomplete: element {} was never written or its chunk cannot be found", where(), element);
  };
  if (count == 0) return;
  if (chunk_.empty()) {
    if (H5Dget_storage_size(handle_.id()) == 0) refuse(begin);
    return;
  }
  for (hsize_t at = begin / chunk_[0] * chunk_[0]; at < begin + count; at += chunk_[0]) {
    hsize_t bytes = 0;
    if (H5Dget_chunk_storage_size(handle_.id(), &at, &bytes) < 0 || bytes == 0) refuse(std::max<uint64_t>(at, begin));
  }
}

void Dataset::write_slab(std::span<const uint64_t> start, std::span<const uint64_t> count, Type type,
                         const void* values, size_t size) {
  const Lock lock;
  const Handle in_file = select(start, count, size);
  if (size == 0) return;
  const hsize_t extent = size;
  const Handle in_memory(H5Screate_simple(1, &extent, nullptr), &H5Sclose);
  if (H5Dwrite(handle_.id(), native(type), in_memory.id(), in_file.id(), H5P_DEFAULT, values) < 0) {
    throw_not_written("write " + where(), file_);
  }
}

std::string Group::path_of(const std::string& name) const { return name_ == "/" ? "/" + name : name_ + "/" + name; }

bool Group::contains(const std::string& name) const {
  const Lock lock;
  const htri_t exists = H5Lexists(handle_.id(), name.c_str(), H5P_DEFAULT);
  if (exists < 0) throw_user_error("cannot access {} in {}: {}", path_of(name), file_.string(), reason());
  return exists > 0;
}

std::vector<std::string> Group::names() const {
  const Lock lock;
  std::vector<std::string> found;
  const H5L_iterate_t append = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  if (H5Literate(handle_.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, append, &found) < 0) {
    throw_user_error("cannot list {}: {}", where(), reason());
  }
  return found;
}

Dataset Group::dataset(const std::string& name) const {
  const Lock lock;
  if (!contains(name)) throw_user_error("{} has no {}: unexpected file format", file_.string(), path_of(name));
  if (is_read_only(handle_.id())) {
    const std::string where = fmt::format("{} of {}", path_of(name), file_.string());
    check_layout(place_of(handle_.id(), name, where), file_, path_of(name));
  }
  Handle handle(H5Dopen2(handle_.id(), name.c_str(), H5P_DEFAULT), &H5Dclose);
  if (!handle) throw_user_error("cannot open {} of {}: {}", path_of(name), file_.string(), reason());
  return Dataset(std::move(handle), file_, path_of(name));
}

Group Group::group(const std::string& name) const {
  const Lock lock;
  if (!contains(name)) throw_user_error("{} has no {}: unexpected file format", file_.string(), path_of(name));
  Handle handle(H5Gopen2(handle_.id(), name.c_str(), H5P_DEFAULT), &H5Gclose);
  if (!handle) throw_user_error("cannot open {} of {}: {}", path_of(name), file_.string(), reason());
  return Group(std::move(handle), file_, path_of(name));
}

Group Group::create_group(const std::string& name) {
  const Lock lock;
  Handle handle(H5Gcreate2(handle_.id(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), &H5Gclose);
  if (!handle) throw_not_written(fmt::format("create {} in {}", path_of(name), file_.string()), file_);
  return Group(std::move(handle), file_, path_of(name));
}

Dataset Group::create_dataset(const std::string& name, Type type, std::span<const uint64_t> shape,
                              std::span<const uint64_t> chunk) {
  const Lock lock;
  const std::vector<hsize_t> extents(shape.begin(), shape.end()), chunks(chunk.begin(), chunk.end());
  const Handle space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), &H5Sclose);
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  if (!chunks.empty()) H5Pset_chunk(properties.id(), static_cast<int>(chunks.size()), chunks.data());
  Handle handle(
      H5Dcreate2(handle_.id(), name.c_str(), native(type), space.id(), H5P_DEFAULT, properties.id(), H5P_DEFAULT),
      &H5Dclose);
  if (!handle) throw_not_written(fmt::format("create {} in {}", path_of(name), file_.string()), file_);
  return Dataset(std::move(handle), file_, path_of(name));
}

int64_t Group::reserve_dataset(const std::string& name, Type type, std::span<const uint64_t> shape) {
  const Lock lock;
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Handle space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), &H5Sclose);
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  H5Pset_alloc_time(properties.id(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(properties.id(), H5D_FILL_TIME_NEVER);
  // Makes the file contents deterministic.
  H5Pset_obj_track_times(properties.id(), false);
  const Handle handle(
      H5Dcreate2(handle_.id(), name.c_str(), native(type), space.id(), H5P_DEFAULT, properties.id(), H5P_DEFAULT),
      &H5Dclose);
  if (!handle) throw_not_written(fmt::format("create {} in {}", path_of(name), file_.string()), file_);
  if (product(shape) == 0) return -1;
  const haddr_t offset = H5Dget_offset(handle.id());
  if (offset == HADDR_UNDEF) throw_not_written(fmt::format("allocate {} in {}", path_of(name), file_.string()), file_);
  return static_cast<int64_t>(offset);
}

File::File(Handle handle, Handle root, std::filesystem::path path)
    : Group(std::move(root), std::move(path), "/"), file_handle_(std::move(handle)) {}

File File::create(const std::filesystem::path& path, uint64_t alignment) {
  const Lock lock;
  const Handle access = without_file_lock();
  if (alignment > 1 && H5Pset_alignment(access.id(), alignment, alignment) < 0) {
    throw_failure("H5Pset_alignment failed: {}", reason());
  }
  Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), &H5Fclose);
  if (!file) throw_not_written("create " + path.string(), path);
  Handle root(H5Gopen2(file.id(), "/", H5P_DEFAULT), &H5Gclose);
  if (!root) throw_not_written("create " + path.string(), path);
  return File(std::move(file), std::move(root), path);
}

File File::open(const std::filesystem::path& path) {
  const Lock lock;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw_user_error("{} does not exist", path.string());
  if (std::filesystem::is_directory(status)) throw_user_error("{} is a folder, expected an HDF5 file", path.string());
  // Rejects FIFOs because the library would wait for a writer.
  if (std::filesystem::is_other(status)) io::File::open_for_reading(path);
  if (std::filesystem::file_size(path, error) == 0 && !error) throw_user_error("{} is empty", path.string());
  const Handle access = without_file_lock();
  Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), &H5Fclose);
  if (!file) throw_user_error("{} cannot be opened as an HDF5 file: {}", path.string(), reason());
  Handle root(H5Gopen2(file.id(), "/", H5P_DEFAULT), &H5Gclose);
  if (!root) throw_user_error("{} cannot be opened as an HDF5 file: {}", path.string(), reason());
  return File(std::move(file), std::move(root), path);
}

File File::open_image(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  constexpr size_t kIncrement = 1 << 16;  // growth increment of a writable image
  const Lock lock;
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), &H5Pclose);
  // By default, the library copies the image and does not modify the original.
  void* image = const_cast<std::byte*>(bytes.data());
  if (H5Pset_fapl_core(access.id(), kIncrement, /*backing_store=*/false) < 0 ||
      H5Pset_file_image(access.id(), image, bytes.size()) < 0) {
    throw_failure("cannot pass {} to HDF5: {}", path.string(), reason());
  }
  // The library needs a unique path that does not exist, because images with equal paths are treated as the same file.
  // This path is below a regular file and ends with the checksum of the contents.
  const std::string name = (path / to_hex(checksum(bytes))).string();
  Handle file(H5Fopen(name.c_str(), H5F_ACC_RDONLY, access.id()), &H5Fclose);
  if (!file) throw_user_error("{} cannot be opened as an HDF5 file: {}", path.string(), reason());
  Handle root(H5Gopen2(file.id(), "/", H5P_DEFAULT), &H5Gclose);
  if (!root) throw_user_error("{} cannot be opened as an HDF5 file: {}", path.string(), reason());
  return File(std::move(file), std::move(root), path);
}

int File::descriptor() const {
  const Lock lock;
  void* descriptor = nullptr;
  if (H5Fget_vfd_handle(file_handle_.id(), H5P_DEFAULT, &descriptor) < 0) {
    throw_failure("cannot get the file descriptor of {}: {}", file_.string(), reason());
  }
  return *static_cast<const int*>(descriptor);
}

void File::close() {
  const Lock lock;
  if (file_handle_ && H5Fflush(file_handle_.id(), H5F_SCOPE_LOCAL) < 0) {
    throw_not_written("write " + file_.string(), file_);
  }
  const bool root_closed = handle_.reset();
  const bool file_closed = file_handle_.reset();
  if (!root_closed || !file_closed) throw_not_written("close " + file_.string(), file_);
}

bool Node::has_attribute(const std::string& name) const {
  const Lock lock;
  const htri_t exists = H5Aexists(handle_.id(), name.c_str());
  if (exists < 0) throw_user_error("cannot access attribute '{}' on {}: {}", name, where(), reason());
  return exists > 0;
}

size_t Node::attribute_size(const std::string& name) const {
  const Lock lock;
  const Handle attribute(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), &H5Aclose);
  if (!attribute) throw_user_error("attribute '{}' is missing from {}: unexpected file format", name, where());
  const Handle space(H5Aget_space(attribute.id()), &H5Sclose);
  return space ? static_cast<size_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space.id()), 0)) : 0;
}

void Node::read_attribute(const std::string& name, Type type, void* out, size_t count) const {
  const Lock lock;
  const size_t size = attribute_size(name);
  if (size != count) throw_user_error("attribute '{}' on {} has {} values, expected {}", name, where(), size, count);
  const Handle attribute(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), &H5Aclose);
  if (!attribute || H5Aread(attribute.id(), native(type), out) < 0) {
    throw_user_error("cannot read attribute '{}' on {} as a number: {}", name, where(), reason());
  }
}

std::string Node::text_attribute(const std::string& name) const {
  const Lock lock;
  if (attribute_size(name) != 1) throw_user_error("attribute '{}' on {} is not a single string", name, where());
  const Handle attribute(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), &H5Aclose);
  const Handle stored(H5Aget_type(attribute.id()), &H5Tclose);
  if (!stored || H5Tget_class(stored.id()) != H5T_STRING) {
    throw_user_error("attribute '{}' on {} is not a string", name, where());
  }
  if (H5Tis_variable_str(stored.id()) > 0) {
    return read_variable_text(place_of(handle_.id(), ".", where()), file_, name);
  }
  constexpr size_t kMaxBytes = 64 << 20;
  if (H5Tget_size(stored.id()) > kMaxBytes) {
    throw_user_error("attribute '{}' on {} is too long: {} bytes", name, where(), H5Tget_size(stored.id()));
  }
  std::string text(H5Tget_size(stored.id()), '\0');
  if (H5Aread(attribute.id(), stored.id(), text.data()) < 0) {
    throw_user_error("cannot read attribute '{}' on {}: {}", name, where(), reason());
  }
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

void Node::write_attribute(const std::string& name, Type type, const void* values, size_t count, bool scalar) {
  const Lock lock;
  if (has_attribute(name)) H5Adelete(handle_.id(), name.c_str());
  const hsize_t extent = count;
  const Handle space(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, nullptr), &H5Sclose);
  const Handle attribute(H5Acreate2(handle_.id(), name.c_str(), native(type), space.id(), H5P_DEFAULT, H5P_DEFAULT),
                         &H5Aclose);
  if (!attribute || (count > 0 && H5Awrite(attribute.id(), native(type), values) < 0)) {
    throw_not_written(fmt::format("write attribute '{}' on {}", name, where()), file_);
  }
}

void Node::set_attribute(const std::string& name, const std::string& text) {
  const Lock lock;
  if (text.find('\0') != std::string::npos) {
    throw_failure("cannot write attribute '{}' on {}: the string contains a null byte", name, where());
  }
  if (has_attribute(name)) H5Adelete(handle_.id(), name.c_str());
  // Uses a variable-length string, which is stored in the heap, because the object header is limited to 64 KiB.
  const Handle type(H5Tcopy(H5T_C_S1), &H5Tclose);
  H5Tset_size(type.id(), H5T_VARIABLE);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  const Handle space(H5Screate(H5S_SCALAR), &H5Sclose);
  const Handle attribute(H5Acreate2(handle_.id(), name.c_str(), type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT),
                         &H5Aclose);
  const char* const pointer = text.c_str();
  if (!attribute || H5Awrite(attribute.id(), type.id(), static_cast<const void*>(&pointer)) < 0) {
    throw_not_written(fmt::format("write attribute '{}' on {}", name, where()), file_);
  }
}

}  // namespace mpzero::io::hdf5
