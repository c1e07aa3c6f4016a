#include "app/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace mpzero {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t kKibibyte = 1024;

// The number behind `word` in a file of words and numbers.
std::optional<int64_t> number_behind(const fs::path& path, const std::string& word) {
  std::ifstream file(path);
  std::string found;
  while (file >> found) {
    int64_t number = 0;
    if (found == word && file >> number) return number;
  }
  return std::nullopt;
}

// Of a file that holds nothing else; none where it says "max".
std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// What a control group of version 2 leaves.
int64_t left_in_group(const fs::path& group) {
  const std::optional<int64_t> limit = number_in(group / "memory.max");
  const std::optional<int64_t> used = number_in(group / "memory.current");
  if (!limit || !used) return kUnlimited;
  const int64_t cache = number_behind(group / "memory.stat", "inactive_file").value_or(0);
  return std::max<int64_t>(0, *limit - (*used - std::min(cache, *used)));
}

// The path of this process's group, "/user.slice/..."; empty without version 2.
std::string group_of_process(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "";
}

}  // namespace

int64_t host_memory_left(const fs::path& root) {
  int64_t left = kUnlimited;
  if (const auto kibibytes = number_behind(root / "proc/meminfo", "MemAvailable:")) left = *kibibytes * kKibibyte;
  const fs::path groups = root / "sys/fs/cgroup";
  // Every group on the way up has a limit of its own.
  fs::path group = groups / fs::path(group_of_process(root)).relative_path();
  while (true) {
    left = std::min(left, left_in_group(group));
    if (group == groups || !group.has_relative_path() || group.parent_path() == group) break;
    group = group.parent_path();
  }
  return left;
}

}  // namespace mpzero
