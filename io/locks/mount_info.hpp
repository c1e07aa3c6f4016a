#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace mpzero::io {

// A mounted file system, as a line of /proc/self/mountinfo describes it (proc(5)).
struct Mount {
  std::string type;     // "ext4", "nfs4", "lustre"
  std::string options;  // of the mount and of the file system, with a comma before and after each
};

// The mount that holds the absolute path. std::nullopt if the table has none.
std::optional<Mount> find_mount(std::string_view mountinfo, const std::filesystem::path& path);

// Which processes flock(2) on a file of this mount keeps out.
enum class LockReach : uint8_t {
  kAll,       // every process that can reach the file
  kThisHost,  // other hosts that mount it are not affected
  kUnknown,
};
LockReach lock_reach(const Mount& mount);

// From this machine's table. kUnknown if it cannot be read.
LockReach lock_reach_of(const std::filesystem::path& folder);

}  // namespace mpzero::io
