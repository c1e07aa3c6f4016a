#include "app/machine/host_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>

namespace mpzero {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Returns the first number in a file; std::nullopt if the file is missing or begins with a word such as "max".
std::optional<int64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// Calls `visit` for the folders of the process's cgroup and all ancestors. `controller`: cgroup v1 controller; empty
// for cgroup v2.
void for_each_group(const fs::path& root, const std::string& controller,
                    const std::function<void(const fs::path&)>& visit) {
  std::ifstream groups(root / "proc/self/cgroup");
  const fs::path mount = root / "sys/fs/cgroup" / controller;
  std::string line;
  while (std::getline(groups, line)) {
    // Line format: number:controller,controller:/path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    if (names.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    while (!group.empty()) {
      visit(mount / group);
      group = group.parent_path();
    }
  }
  // In a container, the path may be relative to the host's root, while the mount is the container's cgroup.
  visit(mount);
}

int64_t left_in_group(std::optional<int64_t> limit, std::optional<int64_t> used, int64_t caches) {
  if (!limit || !used) return kUnlimited;
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - caches));
}

}  // namespace

std::optional<int64_t> number_after(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    int64_t number = 0;
    if (word == key && file >> number) return number;
  }
  return std::nullopt;
}

int64_t available_host_bytes(const fs::path& root) {
  int64_t available = kUnlimited;
  if (const auto kibibytes = number_after(root / "proc/meminfo", "MemAvailable:")) available = *kibibytes * 1024;
  for_each_group(root, "", [&](const fs::path& group) {
    const int64_t caches = number_after(group / "memory.stat", "inactive_file").value_or(0) +
                           number_after(group / "memory.stat", "active_file").value_or(0);
    available = std::min(
        available, left_in_group(read_number(group / "memory.max"), read_number(group / "memory.current"), caches));
  });
  for_each_group(root, "memory", [&](const fs::path& group) {
    const int64_t caches = number_after(group / "memory.stat", "total_inactive_file").value_or(0) +
                           number_after(group / "memory.stat", "total_active_file").value_or(0);
    available = std::min(available, left_in_group(read_number(group / "memory.limit_in_bytes"),
                                                  read_number(group / "memory.usage_in_bytes"), caches));
  });
  return available;
}

int allowed_cores(const fs::path& root) {
  double cores = 0;
  const auto limit = [&](double allowed) { cores = cores == 0 ? allowed : std::min(cores, allowed); };
  for_each_group(root, "", [&](const fs::path& group) {
    std::ifstream file(group / "cpu.max");
    double quota = 0, period = 0;
    if (file >> quota >> period && quota > 0 && period > 0) limit(quota / period);
  });
  for_each_group(root, "cpu", [&](const fs::path& group) {
    const auto quota = read_number(group / "cpu.cfs_quota_us"), period = read_number(group / "cpu.cfs_period_us");
    if (quota && period && *quota > 0 && *period > 0) {
      limit(static_cast<double>(*quota) / static_cast<double>(*period));
    }
  });
  return cores == 0 ? 0 : std::max(1, static_cast<int>(cores));
}

}  // namespace mpzero
