#include "parallel/network/rdma_devices.hpp"

#include <algorithm>
#include <system_error>

namespace mpzero::parallel {
namespace {

namespace fs = std::filesystem;

// Recognized by its driver, because the device's name (efa_0, rdmap16s27) depends on the system's naming rules.
bool is_efa(const fs::path& device) {
  if (device.filename().string().rfind("efa", 0) == 0) return true;
  std::error_code error;
  return fs::read_symlink(device / "device" / "driver", error).filename() == "efa";
}

}  // namespace

std::vector<RdmaDevice> rdma_devices(const fs::path& root) {
  std::vector<RdmaDevice> devices;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "sys/class/infiniband", error)) {
    devices.push_back({.name = entry.path().filename().string(), .efa = is_efa(entry.path())});
  }
  std::sort(devices.begin(), devices.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return devices;
}

int count_efa(const std::vector<RdmaDevice>& devices) {
  return static_cast<int>(std::count_if(devices.begin(), devices.end(), [](const auto& device) { return device.efa; }));
}

}  // namespace mpzero::parallel
