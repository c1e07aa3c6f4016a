#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>

#include "app/exporter/exporter.hpp"
#include "base/process_group.hpp"

namespace mpzero {

// The ranks of this host by the PCI address of their GPU; `device` is this rank's GPU. Collective.
std::map<std::string, int> gpus_of_host(at::Device device, ProcessGroup& group);

// Collects the metrics of these GPUs; call from one thread. Does not block on a hung driver.
Collector gpu_collector(std::map<std::string, int> ranks);

}  // namespace mpzero
