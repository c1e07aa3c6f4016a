#pragma once

#include <string>

namespace mpzero {

// Error codes with the same values in CUDA's driver and runtime APIs.
namespace cuda_error {
inline constexpr int kNone = 0;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kInsufficientDriver = 35;  // only in the runtime API; also returned if libcuda.so.1 is missing
inline constexpr int kUnavailable = 46;
inline constexpr int kNoDevice = 100;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kSystemNotReady = 802;
inline constexpr int kSystemDriverMismatch = 803;
}  // namespace cuda_error

// Cause and remedy of a CUDA error.
struct CudaErrorCause {
  std::string cause;   // a clause; empty if unknown
  std::string remedy;  // a clause
};
inline CudaErrorCause explain_cuda_error(int error) {
  switch (error) {
    case cuda_error::kSystemNotReady:
      return {.cause = "NVIDIA's Fabric Manager is not running or has not finished starting",
              .remedy = "check `systemctl status nvidia-fabricmanager`: GPUs with NVSwitch require Fabric Manager"};
    case cuda_error::kSystemDriverMismatch:
      return {.cause = "libcuda.so.1 and the kernel driver have different versions",
              .remedy = "reboot the node after a driver update, or remove cuda-compat from LD_LIBRARY_PATH"};
    case cuda_error::kOutOfMemory:
      return {.cause = "other processes use all GPU memory", .remedy = "stop the processes that `nvidia-smi` lists"};
    case cuda_error::kUnavailable:
      return {.cause = "another process has exclusive use of the GPU, or the GPU needs a reset",
              .remedy = "stop the processes that `nvidia-smi` lists, or reset the GPU (nvidia-smi -r)"};
    default:
      return {.cause = {},
              .remedy = "reboot or replace the node; `nvidia-smi` and `dmesg | grep -i nvrm` show details"};
  }
}

// Returns true if the error means that the host's GPUs are broken. Returns false if GPUs are missing or hidden.
inline bool is_fault_of_host(int error) {
  return error != cuda_error::kNone && error != cuda_error::kInsufficientDriver && error != cuda_error::kNoDevice &&
         error != cuda_error::kInvalidDevice;
}

}  // namespace mpzero
