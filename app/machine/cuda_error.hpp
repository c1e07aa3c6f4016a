#pragma once

#include <string>

namespace mpzero {

// Error codes that CUDA's driver and its runtime have in common.
namespace cuda_error {
inline constexpr int kNone = 0;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kInsufficientDriver = 35;  // of the runtime alone; also: there is no libcuda.so.1
inline constexpr int kUnavailable = 46;
inline constexpr int kNoDevice = 100;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kSystemNotReady = 802;
inline constexpr int kSystemDriverMismatch = 803;
}  // namespace cuda_error

// What an error of CUDA says about a host.
struct CudaErrorCause {
  std::string cause;   // part of a sentence; empty: not known
  std::string remedy;  // part of a sentence
};
CudaErrorCause explain_cuda_error(int error);

// Whether an error means that the GPUs of a host do not work, and not that there are none or that they are hidden.
bool is_fault_of_host(int error);

}  // namespace mpzero
