#pragma once

// Newer libraries keep the 1.10 names under this switch.
#define H5_USE_110_API
#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string>

#include "io/hdf5/file.hpp"
#include "io/hdf5/header.hpp"

// For io/hdf5/file.cpp, the only caller of the C library.
namespace mpzero::io::hdf5 {

static_assert(std::same_as<Id, hid_t>);
static_assert(sizeof(hsize_t) == sizeof(uint64_t));

// The process-wide lock for the library. It also keeps the library from printing its own error stack.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

// The reason for the last failure, as described by the system or the library.
std::string reason();

// Throws the error of the last failed call for `file`, from which `what` was to be read. A system error is reported as
// such. Anything else counts as damage and is thrown as UserError.
[[noreturn]] void throw_not_read(const std::string& what, const std::filesystem::path& file);

// Throws the error of the last failed call for `file`, which was to be written. A full disk is a UserError.
[[noreturn]] void throw_not_written(const std::string& what, const std::filesystem::path& file);

hid_t native(Type type);

// Location of the object `name` ("." for itself) in an open file or group. Throws UserError beginning with "cannot find
// <where>" if there is none, or if it is in another file.
ObjectPlace place_of(hid_t node, const std::string& name, const std::string& where);

// Whether the file of an open object was opened read-only, so that its bytes are those of the object.
bool is_read_only(hid_t node);

}  // namespace mpzero::io::hdf5
