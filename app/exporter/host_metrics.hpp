#pragma once

#include <filesystem>

#include "app/exporter/families.hpp"

namespace mpzero {

// CPU, memory, network interfaces and RDMA devices (EFA's counters among them). What a host does not have or this
// process may not read is left out. `root` has proc and sys.
void collect_host(const std::filesystem::path& root, Families& families);

}  // namespace mpzero
