#pragma once

#include <string>
#include <vector>

namespace mpzero::parallel {

// The PCI address of a CUDA device by its index in this process ("0000:10:1c.0"), which means the same to every process
// of the machine, whatever its CUDA_VISIBLE_DEVICES. All parts that MIG makes of a GPU have the address of the whole.
// Empty where CUDA does not say.
std::string gpu_address(int device);

// Those of all devices that this process sees, in CUDA's order.
std::vector<std::string> visible_gpus();

// Two addresses of one place: NVIDIA's libraries write the domain with four or eight digits, in either case.
bool same_gpu(const std::string& a, const std::string& b);

}  // namespace mpzero::parallel
