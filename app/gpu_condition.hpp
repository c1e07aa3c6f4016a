#pragma once

#include <c10/core/Device.h>

#include <string>

namespace mpzero {

// What may slow a GPU down, for a line of the log: "GPU 3: 1410 of 1980 MHz, 87 °C, HW Thermal Slowdown". Empty where
// NVIDIA's management library does not say, or the GPU's place in its list is not known.
std::string gpu_condition(at::Device device);

}  // namespace mpzero
