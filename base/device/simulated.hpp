#pragma once

#include <c10/core/Device.h>

// Simulated device, implemented by app/simulation. Simulated tensors have shapes and addresses but no memory, and
// simulated streams only track time. The model and the engine run unchanged on the simulated device to predict their
// memory use and run time.
namespace mpzero {

inline constexpr c10::DeviceType kSimulatedDevice = c10::DeviceType::PrivateUse1;

// Hardware that the simulated device models.
struct SimulatedTarget {
  c10::DeviceType type = c10::DeviceType::CUDA;  // or CPU
  int multiprocessors = 132;                     // GPU only; 132 for H100 and H200
  int threads = 0;                               // CPU only, threads per rank; 0: the threads of this process
  double flops_per_byte = 15'000;                // GPU only; bf16 FLOPs that take as long as copying one byte over PCIe
  bool operator==(const SimulatedTarget&) const = default;
};
SimulatedTarget& simulated_target();

inline bool is_simulated(c10::Device device) { return device.type() == kSimulatedDevice; }

// Return true if GPU kernels (or CPU kernels) process tensors on `device`. Code that chooses an implementation must use
// uses_gpu_kernels() and uses_cpu_kernels() instead of is_cuda() and is_cpu(), so that the same implementation is
// chosen on the simulated device.
inline bool uses_gpu_kernels(c10::Device device) {
  return device.is_cuda() || (is_simulated(device) && simulated_target().type == c10::DeviceType::CUDA);
}
inline bool uses_cpu_kernels(c10::Device device) {
  return device.is_cpu() || (is_simulated(device) && simulated_target().type == c10::DeviceType::CPU);
}

}  // namespace mpzero
