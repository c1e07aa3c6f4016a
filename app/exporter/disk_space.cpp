#include "app/exporter/disk_space.hpp"

#include <sys/statvfs.h>

namespace mpzero {

DiskSpace::DiskSpace(const std::vector<std::filesystem::path>& folders, const Query& query,
                     std::chrono::milliseconds patience)
    : patience_(patience) {
  for (const std::filesystem::path& folder : folders) {
    folders_.push_back({.name = folder.string(),
                        .size = GuardedCall<std::optional<DiskSize>>([query, folder] { return query(folder); })});
  }
}

void DiskSpace::collect(Families& to) {
  for (Folder& folder : folders_) {
    const MetricLabels labels = {{"folder", folder.name}};
    const std::optional<std::optional<DiskSize>> answer = folder.size.value(patience_);
    if (answer && !*answer) continue;
    to.gauge("mpzero_host_disk_up", "1 if the file system responds, 0 if it hangs.", answer ? 1 : 0, labels);
    if (!answer) continue;
    to.gauge("mpzero_host_disk_bytes", "Size of the file system.", (*answer)->total, labels);
    to.gauge("mpzero_host_disk_available_bytes", "Space available to unprivileged users.", (*answer)->available,
             labels);
  }
}

std::optional<DiskSize> DiskSpace::size_of(const std::filesystem::path& folder) {
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0) return std::nullopt;
  const auto block = static_cast<double>(space.f_frsize);
  return DiskSize{.total = block * static_cast<double>(space.f_blocks),
                  .available = block * static_cast<double>(space.f_bavail)};
}

}  // namespace mpzero
