#pragma once

#include <string>

namespace mpzero {

// Error codes that CUDA's driver and runtime share.
namespace cuda_error {
inline constexpr int kNone = 0;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kInsufficientDriver = 35;  // runtime only; also if libcuda.so.1 is missing
inline constexpr int kUnavailable = 46;
inline constexpr int kNoDevice = 100;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kSystemNotReady = 802;
inline constexpr int kSystemDriverMismatch = 803;
}  // namespace cuda_error

// Cause of a CUDA error on a host, and its remedy.
struct CudaErrorCause {
  std::string cause;   // part of a sentence; empty: unknown
  std::string remedy;  // part of a sentence
};
inline CudaErrorCause explain_cuda_error(int error) {
  switch (error) {
    case cuda_error::kSystemNotReady:
      return {.cause = "NVIDIA's Fabric Manager is not running, or has not finished",
              .remedy = "GPUs with NVSwitch need it: `systemctl status nvidia-fabricmanager` shows why"};
    case cuda_error::kSystemDriverMismatch:
      return {.cause = "libcuda.so.1 and the kernel driver have different versions",
              .remedy = "reboot the node after a driver update, or remove cuda-compat from LD_LIBRARY_PATH"};
    case cuda_error::kOutOfMemory:
      return {.cause = "other processes use all of its memory", .remedy = "stop the processes that `nvidia-smi` lists"};
    case cuda_error::kUnavailable:
      return {.cause = "another process uses the GPU exclusively, or it needs a reset",
              .remedy = "stop the processes that `nvidia-smi` lists, or reset the GPU (nvidia-smi -r)"};
    default:
      return {.cause = {},
              .remedy = "`nvidia-smi` and `dmesg | grep -i nvrm` show details: reboot or replace the node"};
  }
}

// Whether an error means that a host's GPUs do not work, rather than being missing or hidden.
inline bool is_fault_of_host(int error) {
  return error != cuda_error::kNone && error != cuda_error::kInsufficientDriver && error != cuda_error::kNoDevice &&
         error != cuda_error::kInvalidDevice;
}

}  // namespace mpzero
