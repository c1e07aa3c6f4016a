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

// CPU, memory, network interfaces and RDMA devices (EFA's counters among them). What a host does not have or this
// process may not read is left out. `root` has proc and sys.
void collect_host(const std::filesystem::path& root, Families& families);

// The GPUs of a node, with the labels gpu (nvidia-smi's index), uuid and rank. `ranks`: the rank that trains on a GPU,
// by its PCI address. What a GPU or its driver does not report is left out. `gpus`: std::nullopt: the driver hangs.
void collect_gpus(const std::optional<std::vector<doctor::GpuReading>>& gpus, const std::map<std::string, int>& ranks,
                  Families& to);

// EC2's notices about this node's instance.
void collect_ec2(const Ec2Watch& watch, Families& to);

}  // namespace mpzero
