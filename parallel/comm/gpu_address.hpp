#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mpzero::parallel {

// The PCI address of a CUDA device by its index in this process ("0000:10:1c.0"). The same in all processes of the
// host, independent of CUDA_VISIBLE_DEVICES. MIG instances have their GPU's address. Empty if CUDA does not report it.
std::string gpu_address(int device);

// The addresses of all devices visible to this process, in CUDA's order.
std::vector<std::string> visible_gpus();

struct GpuProperties {
  std::string name;          // "NVIDIA H200"
  int64_t memory_bytes = 0;  // total
  int capability = 0;        // 10 times the compute capability: 90
};

// Properties of a CUDA device by its index in this process. Throws Failure if CUDA cannot query them.
GpuProperties gpu_properties(int device);

// Whether two addresses are equal: NVIDIA's libraries write the domain with four or eight digits, in upper or lower
// case.
bool same_gpu(const std::string& a, const std::string& b);

}  // namespace mpzero::parallel
