#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/ec2/ec2_watch.hpp"
#include "app/exporter/families.hpp"
#include "app/gpu/gpu_readings.hpp"

namespace mpzero {

// Adds metrics for the CPU, memory, network interfaces and RDMA devices, including EFA counters. Omits values that are
// missing or not readable. `root`: parent of /proc and /sys.
void collect_host(const std::filesystem::path& root, Families& families);

// Adds metrics for a node's GPUs with the labels gpu (nvidia-smi's index), uuid and rank. `gpus`: std::nullopt if the
// driver hangs. `ranks`: the rank of each GPU, by PCI address. Omits values that the GPU or the driver does not report.
void collect_gpus(const std::optional<std::vector<doctor::GpuReading>>& gpus, const std::map<std::string, int>& ranks,
                  Families& to);

// Adds metrics for EC2 notices about this node's instance.
void collect_ec2(const Ec2Watch& watch, Families& to);

}  // namespace mpzero
