#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mpzero::parallel {

// Returns the PCI address of a CUDA device ("0000:10:1c.0"), or an empty string if CUDA does not report it. `device`:
// index of the device in this process. All processes on a host get the same address for a GPU, independent of
// CUDA_VISIBLE_DEVICES. A MIG instance has the address of its GPU.
std::string gpu_address(int device);

// Returns the PCI addresses of all devices visible to this process, in CUDA's order.
std::vector<std::string> visible_gpus();

struct GpuProperties {
  std::string name;          // "NVIDIA H200"
  int64_t memory_bytes = 0;  // total
  int capability = 0;        // 10 * major + minor
  int multiprocessors = 0;
};

// Returns the properties of a CUDA device by its index in this process. Throws Failure if the CUDA query fails.
GpuProperties gpu_properties(int device);

// Returns true if two PCI addresses refer to the same GPU. NVIDIA's libraries write the PCI domain with four or eight
// digits, in upper or lower case.
bool same_gpu(const std::string& a, const std::string& b);

}  // namespace mpzero::parallel
