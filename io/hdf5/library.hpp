#pragma once

// Newer libraries keep the 1.10 names under this switch.
#define H5_USE_110_API
#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string>

#include "io/hdf5/file.hpp"
#include "io/hdf5/header.hpp"

// What io/hdf5/file.cpp and io/hdf5/attributes.cpp share of the C library, which only they call.
namespace mpzero::io::hdf5 {

static_assert(std::same_as<Id, hid_t>);
static_assert(sizeof(hsize_t) == sizeof(uint64_t));

// The process-wide lock over the library, which also keeps the library from printing its own error stack.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

// Why the last call failed, in the system's words or the library's.
std::string reason();

// Throws what the last failed call means for `file`, of which `what` was to be read: an error of the system is named as
// such, anything else is taken for damage and thrown as UserError.
[[noreturn]] void throw_not_read(const std::string& what, const std::filesystem::path& file);

// Throws what the last failed call means for `file`, which was to be written: no space is the user's to mend.
[[noreturn]] void throw_not_written(const std::string& what, const std::filesystem::path& file);

hid_t native(Type type);

// Where the object `name` ("." for itself) of an open file or group lies. Throws UserError beginning with "cannot find
// <where>" where there is none, or where it lies in another file.
ObjectPlace place_of(hid_t node, const std::string& name, const std::string& where);

// Whether the file of an open object was opened for reading alone, so that its bytes are those of the object.
bool is_read_only(hid_t node);

}  // namespace mpzero::io::hdf5
