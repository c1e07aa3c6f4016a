#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>

#include "app/exporter/exporter.hpp"
#include "base/process_group.hpp"

namespace mpzero {

// Returns the ranks of this host, keyed by the PCI address of their GPU. `device`: this rank's GPU. Collective.
std::map<std::string, int> gpus_of_host(at::Device device, ProcessGroup& group);

// Returns a collector for the GPUs in `ranks`. Does not block if the driver hangs. Not thread-safe.
Collector gpu_collector(std::map<std::string, int> ranks);

}  // namespace mpzero
