#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace mpzero::faults {

// The kinds of calls that the preloaded library (disk_faults.cpp) counts and can make fail.
enum class DiskCall : unsigned char {
  kOpen,    // for reading, also of a folder
  kCreate,  // for writing
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
  kRemove,  // of a file or a folder
};
inline constexpr size_t kDiskCalls = 13;

// Indexed by DiskCall. The last entry stands for all of them together.
inline constexpr std::array<std::string_view, kDiskCalls + 1> kDiskCallNames = {
    "open",     "create",   "stat",     "read", "write", "sync",   "rename",
    "exchange", "allocate", "truncate", "lock", "mkdir", "remove", "any"};

}  // namespace mpzero::faults
