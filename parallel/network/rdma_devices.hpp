#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mpzero::parallel {

// A device for remote memory access, as the kernel lists it under /sys/class/infiniband.
struct RdmaDevice {
  std::string name;  // efa_0, rdmap16s27, mlx5_0
  bool efa = false;  // Amazon's Elastic Fabric Adapter
};

// By name. `root`: where /sys is.
std::vector<RdmaDevice> rdma_devices(const std::filesystem::path& root = "/");

// How many of them are EFA.
int count_efa(const std::vector<RdmaDevice>& devices);

}  // namespace mpzero::parallel
