#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/exporter/families.hpp"

namespace mpzero {

// Where a host's numbers are.
struct HostPaths {
  std::filesystem::path root = "/";          // that has proc and sys
  std::vector<std::filesystem::path> disks;  // folders whose file systems are reported
};

// CPU, memory, file systems, network interfaces and RDMA devices (EFA's counters among them). What a host does not have
// or this process may not read is left out.
void collect_host(const HostPaths& paths, Families& families);

}  // namespace mpzero
