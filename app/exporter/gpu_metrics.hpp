#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/exporter/families.hpp"
#include "app/gpu/gpu_readings.hpp"

namespace mpzero {

// The GPUs of a node, with the labels gpu (nvidia-smi's index), uuid and rank. `ranks`: the rank that trains on a GPU,
// by its PCI address. What a GPU or its driver does not report is left out. `gpus`: std::nullopt: the driver hangs.
void collect_gpus(const std::optional<std::vector<doctor::GpuReading>>& gpus, const std::map<std::string, int>& ranks,
                  Families& to);

}  // namespace mpzero
