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

// Adds CPU, memory, network interfaces and RDMA devices (including EFA's counters). Omits values that the host lacks or
// this process may not read. `root` contains proc and sys.
void collect_host(const std::filesystem::path& root, Families& families);

// Adds the GPUs of a node, with the labels gpu (nvidia-smi's index), uuid and rank. `ranks`: the rank that trains on a
// GPU, by PCI address. Omits values that a GPU or its driver does not report. `gpus`: std::nullopt: the driver hangs.
void collect_gpus(const std::optional<std::vector<doctor::GpuReading>>& gpus, const std::map<std::string, int>& ranks,
                  Families& to);

// Adds EC2's notices about this node's instance.
void collect_ec2(const Ec2Watch& watch, Families& to);

}  // namespace mpzero
