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

// Of a file system, in bytes.
struct DiskSize {
  double total = 0;
  double available = 0;  // to users
};

// The file systems of some folders, of which any may hang.
class DiskSpace {
 public:
  // std::nullopt: there is no such folder.
  using Query = std::function<std::optional<DiskSize>(const std::filesystem::path&)>;

  // `query` is called in threads of its own. After `patience` a file system counts as one that hangs.
  explicit DiskSpace(const std::vector<std::filesystem::path>& folders, const Query& query = size_of,
                     std::chrono::milliseconds patience = std::chrono::seconds(1));

  void collect(Families& families);

  // By statvfs().
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
