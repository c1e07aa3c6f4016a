#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

namespace mpzero {

// What may slow a GPU down, for a line of the log: "GPU 3: 1410 of 1980 MHz, 87 °C, HW Thermal Slowdown", with the
// number that nvidia-smi gives it. Empty on the CPU, and where NVIDIA's management library does not say.
std::string gpu_condition(at::Device device);

// The same of the GPU at a PCI address, by the first of `libraries` that can be loaded.
std::string gpu_condition(const std::string& pci_address, const std::vector<std::string>& libraries);

}  // namespace mpzero
