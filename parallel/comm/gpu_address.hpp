#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mpzero::parallel {

// The PCI address of a CUDA device by its index in this process ("0000:10:1c.0"). All processes of the machine agree on
// it, whatever their CUDA_VISIBLE_DEVICES. All MIG instances of a GPU have the address of the GPU. Empty if CUDA does
// not report it.
std::string gpu_address(int device);

// The addresses of all devices visible to this process, in CUDA's order.
std::vector<std::string> visible_gpus();

struct GpuProperties {
  std::string name;          // "NVIDIA H200"
  int64_t memory_bytes = 0;  // in all
  int capability = 0;        // 10 times the compute capability: 90
};

// Of a CUDA device by its index in this process. Throws Failure if CUDA does not describe it.
GpuProperties gpu_properties(int device);

// Whether two addresses are equal: NVIDIA's libraries write the domain with four or eight digits, in either case.
bool same_gpu(const std::string& a, const std::string& b);

}  // namespace mpzero::parallel
