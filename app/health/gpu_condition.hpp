#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace mpzero {

// Clocks, temperature and throttling of a GPU for a log line: "GPU 3: 1410 of 1980 MHz, 87 °C, HW Thermal Slowdown",
// with nvidia-smi's index. Empty on the CPU, or if NVIDIA's management library does not report it.
std::string gpu_condition(at::Device device);

// The same for the GPU at a PCI address, using the first of `libraries` that can be loaded.
std::string gpu_condition(const std::string& pci_address, const std::vector<std::string>& libraries);

// "GPU 3 of node-7 is throttled (HW Thermal Slowdown)"; empty: not throttled by heat or a fault, unknown, or a CPU. A
// power cap is not a fault.
std::string gpu_throttling(at::Device device);
std::string gpu_throttling(const std::string& pci_address, const std::vector<std::string>& libraries);

}  // namespace mpzero
