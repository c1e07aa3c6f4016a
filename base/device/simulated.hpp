#pragma once

#include <c10/core/Device.h>

// The simulated device: its tensors have shapes, addresses and no memory, and its streams are clocks. The model and the
// engine run on it unchanged, so that their memory and time are known before a run. app/simulation implements it.
namespace mpzero {

inline constexpr c10::DeviceType kSimulatedDevice = c10::DeviceType::PrivateUse1;

// The device that the simulated one stands for.
struct SimulatedTarget {
  c10::DeviceType type = c10::DeviceType::CUDA;  // or CPU
  int multiprocessors = 132;                     // of a GPU: those of an H100 or H200
};
SimulatedTarget& simulated_target();

inline bool is_simulated(c10::Device device) { return device.type() == kSimulatedDevice; }

// Whether kernels for GPUs, or for CPUs, compute this device's tensors. Code that chooses an implementation asks this
// instead of is_cuda() or is_cpu(), so that a simulated device makes the same choice.
inline bool uses_gpu_kernels(c10::Device device) {
  return device.is_cuda() || (is_simulated(device) && simulated_target().type == c10::DeviceType::CUDA);
}
inline bool uses_cpu_kernels(c10::Device device) {
  return device.is_cpu() || (is_simulated(device) && simulated_target().type == c10::DeviceType::CPU);
}

}  // namespace mpzero
