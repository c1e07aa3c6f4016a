#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::parallel {

// A device for remote memory access, as listed by the kernel under /sys/class/infiniband.
struct RdmaDevice {
  std::string name;  // efa_0, rdmap16s27, mlx5_0
  bool efa = false;  // Amazon's Elastic Fabric Adapter
};

// The devices, sorted by name. `root`: the folder that contains /sys.
std::vector<RdmaDevice> rdma_devices(const std::filesystem::path& root = "/");

// The number of EFA devices among them.
int count_efa(const std::vector<RdmaDevice>& devices);

}  // namespace mpzero::parallel
