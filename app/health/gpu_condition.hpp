#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace mpzero {

// Returns the clock, temperature and throttling of a GPU: "GPU 3: 1410 of 1980 MHz, 87 °C, HW Thermal Slowdown". Uses
// nvidia-smi's index. Returns an empty string on the CPU, or if NVML does not report the GPU.
std::string gpu_condition(at::Device device);

// Overload for the GPU at a PCI address. Uses the first library in `libraries` that can be loaded.
std::string gpu_condition(const std::string& pci_address, const std::vector<std::string>& libraries);

// Returns text such as "GPU 3 of node-7 is throttled (HW Thermal Slowdown)". Returns an empty string on the CPU, or if
// the GPU is not throttled by heat or a fault, or if its state is unknown. A power cap is not a fault.
std::string gpu_throttling(at::Device device);
std::string gpu_throttling(const std::string& pci_address, const std::vector<std::string>& libraries);

}  // namespace mpzero
