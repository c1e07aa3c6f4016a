#pragma once

// Selects the 1.10 API in newer versions of the HDF5 library.
#define H5_USE_110_API
#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string>

#include "io/hdf5/file.hpp"
#include "io/hdf5/header.hpp"

// Internal to io/hdf5, the only caller of the C library.
namespace mpzero::io::hdf5 {

static_assert(std::same_as<Id, hid_t>);
static_assert(sizeof(hsize_t) == sizeof(uint64_t));

// Locks the process-wide mutex for the HDF5 library and disables the library's error printing.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

// Returns the error text of the last failed call, from the system or from HDF5.
std::string reason();

// Throws the error of the last failed call, an attempt to read `what` from `file`. System errors are reported with
// throw_system_error(). Throws UserError for all other errors, which mean that the file is damaged.
[[noreturn]] void throw_not_read(const std::string& what, const std::filesystem::path& file);

// Throws the error of the last failed call, an attempt to write `what` to `file`. Throws Failure if the disk is full.
[[noreturn]] void throw_not_written(const std::string& what, const std::filesystem::path& file);

hid_t native(Type type);

// Returns the location of the object `name` in the open file or group `node`. The name "." refers to `node` itself.
// Throws UserError if the object does not exist or is in another file (external link).
ObjectPlace place_of(hid_t node, const std::string& name, const std::string& where);

// Returns true if the object's file was opened read-only. The bytes on disk then match the library's view.
bool is_read_only(hid_t node);

}  // namespace mpzero::io::hdf5
