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
  double available = 0;  // to users
};

// Sizes of the file systems of some folders, any of which may hang.
class DiskSpace {
 public:
  // std::nullopt: the folder cannot be queried, e.g. does not exist.
  using Query = std::function<std::optional<DiskSize>(const std::filesystem::path&)>;

  // Calls `query` on separate threads. A file system without an answer after `patience` is reported as hanging.
  explicit DiskSpace(const std::vector<std::filesystem::path>& folders, const Query& query = size_of,
                     std::chrono::milliseconds patience = std::chrono::seconds(1));

  void collect(Families& families);

  // Calls statvfs().
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
