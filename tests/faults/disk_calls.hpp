#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace mpzero::faults {

// Kinds of system calls that the preloaded library (disk_faults.cpp) counts and can cause to fail.
enum class DiskCall : unsigned char {
  kOpen,    // open for reading; includes folders
  kCreate,  // open for writing
  kStat,
  kRead,
  kWrite,
  kSync,
  kRename,
  kExchange,  // swaps two names atomically
  kAllocate,
  kTruncate,
  kLock,
  kMkdir,
  kRemove,  // remove a file or a folder
};
inline constexpr size_t kDiskCalls = 13;

// Indexed by DiskCall. The last entry refers to calls of any kind.
inline constexpr std::array<std::string_view, kDiskCalls + 1> kDiskCallNames = {
    "open",     "create",   "stat",     "read", "write", "sync",   "rename",
    "exchange", "allocate", "truncate", "lock", "mkdir", "remove", "any"};

}  // namespace mpzero::faults
