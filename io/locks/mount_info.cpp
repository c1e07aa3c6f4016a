#include "io/locks/mount_info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

// The table escapes blanks and similar characters as a backslash and three octal digits.
std::string unescaped(const std::string& text) {
  constexpr size_t kDigits = 3;
  constexpr int kOctal = 8;
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + kDigits < text.size() && text.find_first_not_of("01234567", i + 1) >= i + 1 + kDigits) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, kDigits), nullptr, kOctal));
      i += kDigits;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool is_below(const fs::path& path, const fs::path& mount_point) {
  return std::mismatch(mount_point.begin(), mount_point.end(), path.begin(), path.end()).first == mount_point.end();
}

bool has(const Mount& mount, std::string_view option) {
  return mount.options.find(fmt::format(",{},", option)) != std::string::npos;
}

}  // namespace

std::optional<Mount> find_mount(std::string_view mountinfo, const fs::path& path) {
  std::optional<Mount> found;
  size_t longest = 0;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    // 36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue
    std::istringstream fields(line);
    std::string id, parent, device, root, point, options, word;
    fields >> id >> parent >> device >> root >> point >> options;
    while (fields >> word && word != "-") {
    }
    std::string type, source, super_options;
    if (!(fields >> type >> source)) continue;
    fields >> super_options;
    const fs::path mount_point = point == "/" ? fs::path("/") : fs::path(unescaped(point));
    // Of several mounts at the same place the last one is visible.
    if (!is_below(path, mount_point) || mount_point.native().size() < longest) continue;
    longest = mount_point.native().size();
    found = Mount{.type = type, .options = fmt::format(",{},{},", options, super_options)};
  }
  return found;
}

LockReach lock_reach(const Mount& mount) {
  // Local to one host, or with locks that span all hosts.
  constexpr std::array<std::string_view, 13> kComplete = {
      "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "tmpfs", "ramfs", "bcachefs", "ceph", "jfs"};
  if (std::find(kComplete.begin(), kComplete.end(), mount.type) != kComplete.end()) return LockReach::kAll;
  if (mount.type == "nfs" || mount.type == "nfs4") {
    const bool local = has(mount, "nolock") || has(mount, "local_lock=flock") || has(mount, "local_lock=all");
    return local ? LockReach::kThisHost : LockReach::kAll;
  }
  // flock(2) succeeds there, but only locks within the node.
  if (mount.type == "gpfs") return LockReach::kThisHost;
  if (mount.type == "lustre") return has(mount, "flock") ? LockReach::kAll : LockReach::kThisHost;
  return LockReach::kUnknown;
}

LockReach lock_reach_of(const fs::path& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  std::ifstream table("/proc/self/mountinfo");
  if (error || !table) return LockReach::kUnknown;
  const std::optional<Mount> mount = find_mount(std::string{std::istreambuf_iterator<char>(table), {}}, path);
  return mount ? lock_reach(*mount) : LockReach::kUnknown;
}

}  // namespace mpzero::io
