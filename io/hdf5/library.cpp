#include "io/hdf5/library.hpp"

#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io::hdf5 {
namespace {

std::recursive_mutex& mutex() {
  static std::recursive_mutex instance;
  return instance;
}

// Returns the innermost description on the library's error stack.
std::string last_description() {
  std::string description;
  const H5E_walk2_t keep_first = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    auto& text = *static_cast<std::string*>(out);
    if (text.empty() && error->desc != nullptr) text = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &description);
  H5Eclear2(H5E_DEFAULT);
  while (!description.empty() && (description.back() == '\n' || description.back() == ' ')) description.pop_back();
  return description.empty() ? "unknown reason" : description;
}

// Returns the errno of a failed system call, or 0. The library's description contains, for example, "errno = 28".
int system_error_in(const std::string& description) {
  constexpr std::string_view kMark = "errno = ";
  const size_t at = description.find(kMark);
  return at == std::string::npos ? 0 : std::atoi(description.c_str() + at + kMark.size());
}

}  // namespace

Lock::Lock() : guard_(mutex()) {
  // Disables the library's cleanup at exit. All handles have owners, and the cleanup would crash on files that could
  // not be closed because of a full disk.
  [[maybe_unused]] static const herr_t no_cleanup_at_exit = H5dont_atexit();
  // In a thread-safe build of the library, this setting is per thread.
  static thread_local const herr_t silenced = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  static_cast<void>(silenced);
}

std::string reason() {
  const std::string description = last_description();
  const int error_number = system_error_in(description);
  return error_number == 0 ? description : std::generic_category().message(error_number);
}

void throw_not_read(const std::string& what, const std::filesystem::path& file) {
  const std::string description = last_description();
  if (const int error_number = system_error_in(description); error_number != 0) {
    throw_system_error("read", file, error_number);
  }
  throw_user_error("cannot read {}: {}", what, description);
}

void throw_not_written(const std::string& what, const std::filesystem::path& file) {
  const std::string description = last_description();
  if (const int error_number = system_error_in(description); error_number != 0) {
    throw_system_error("write", file, error_number);
  }
  throw_failure("cannot {}: {}", what, description);
}

hid_t native(Type type) {
  const hid_t in_order[] = {H5T_NATIVE_UINT8, H5T_NATIVE_UINT16, H5T_NATIVE_UINT32, H5T_NATIVE_UINT64,
                            H5T_NATIVE_INT8,  H5T_NATIVE_INT16,  H5T_NATIVE_INT32,  H5T_NATIVE_INT64,
                            H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE};
  return in_order[static_cast<size_t>(type)];
}

ObjectPlace place_of(hid_t node, const std::string& name, const std::string& where) {
  H5O_info_t self, object;
  const Handle file(H5Iget_file_id(node), &H5Fclose);
  const Handle creation(file ? H5Fget_create_plist(file.id()) : -1, &H5Pclose);
  const Handle access(file ? H5Fget_access_plist(file.id()) : -1, &H5Pclose);
  void* handle = nullptr;
  size_t address_bytes = 0, size_bytes = 0;
  hsize_t user_block = 0, size = 0;
  if (!creation || !access || H5Oget_info2(node, &self, H5O_INFO_BASIC) < 0 ||
      H5Oget_info_by_name2(node, name.c_str(), &object, H5O_INFO_BASIC, H5P_DEFAULT) < 0 ||
      H5Fget_vfd_handle(file.id(), H5P_DEFAULT, &handle) < 0 || H5Fget_filesize(file.id(), &size) < 0 ||
      H5Pget_sizes(creation.id(), &address_bytes, &size_bytes) < 0 ||
      H5Pget_userblock(creation.id(), &user_block) < 0) {
    throw_user_error("cannot find {}: {}", where, reason());
  }
  if (object.fileno != self.fileno) throw_user_error("cannot find {}: it is a link to another file", where);
  if (address_bytes != sizeof(uint64_t) || size_bytes != sizeof(uint64_t)) {
    throw_user_error("cannot locate {}: addresses in the file have {} bytes and sizes have {} bytes; expected 8 and 8",
                     where, address_bytes, size_bytes);
  }
  ObjectPlace place{.base = user_block, .header = object.addr};
  // The handle points to a descriptor or to the address of the image, depending on the driver.
  if (H5Pget_driver(access.id()) == H5FD_CORE) {
    place.image = {*static_cast<const std::byte* const*>(handle), size};
  } else {
    place.descriptor = *static_cast<const int*>(handle);
  }
  return place;
}

bool is_read_only(hid_t node) {
  const Handle file(H5Iget_file_id(node), &H5Fclose);
  unsigned intent = 0;
  if (!file || H5Fget_intent(file.id(), &intent) < 0) throw_failure("H5Fget_intent failed: {}", reason());
  return intent == H5F_ACC_RDONLY;
}

}  // namespace mpzero::io::hdf5
