#pragma once

#include <c10/core/Device.h>

// The simulated device: its tensors have shapes and addresses but no memory, and its streams are clocks. The model and
// the engine run on it unchanged to predict their memory and time. app/simulation implements it.
namespace mpzero {

inline constexpr c10::DeviceType kSimulatedDevice = c10::DeviceType::PrivateUse1;

// The device that is simulated.
struct SimulatedTarget {
  c10::DeviceType type = c10::DeviceType::CUDA;  // or CPU
  int multiprocessors = 132;                     // of a GPU; default: H100 or H200
};
SimulatedTarget& simulated_target();

inline bool is_simulated(c10::Device device) { return device.type() == kSimulatedDevice; }

// Whether GPU or CPU kernels compute this device's tensors. Use these instead of is_cuda() and is_cpu() to choose an
// implementation, so a simulated device makes the same choice.
inline bool uses_gpu_kernels(c10::Device device) {
  return device.is_cuda() || (is_simulated(device) && simulated_target().type == c10::DeviceType::CUDA);
}
inline bool uses_cpu_kernels(c10::Device device) {
  return device.is_cpu() || (is_simulated(device) && simulated_target().type == c10::DeviceType::CPU);
}

}  // namespace mpzero
