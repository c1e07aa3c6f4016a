#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/exporter/families.hpp"
#include "app/exporter/guarded_call.hpp"

namespace mpzero {

// Size of a file system, in bytes.
struct DiskSize {
  double total = 0;
  double available = 0;  // available to unprivileged users
};

// Reports the sizes of file systems without blocking if a file system hangs.
class DiskSpace {
 public:
  // Returns std::nullopt if the folder cannot be queried, for example if it does not exist.
  using Query = std::function<std::optional<DiskSize>(const std::filesystem::path&)>;

  // Calls `query` on separate threads. A file system that does not respond within `patience` is reported as hung.
  explicit DiskSpace(const std::vector<std::filesystem::path>& folders, const Query& query = size_of,
                     std::chrono::milliseconds patience = std::chrono::seconds(1));

  void collect(Families& families);

  // The default Query, which calls statvfs().
  static std::optional<DiskSize> size_of(const std::filesystem::path& folder);

 private:
  struct Folder {
    std::string name;
    GuardedCall<std::optional<DiskSize>> size;
  };
  std::vector<Folder> folders_;
  std::chrono::milliseconds patience_;
};

}  // namespace mpzero
