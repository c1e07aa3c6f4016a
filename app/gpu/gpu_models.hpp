#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace mpzero {

// Data-sheet values of one GPU. Rates are dense rates in TFLOP/s; 0 if unsupported or not published by NVIDIA.
struct GpuModel {
  std::string_view cuda_name;  // cudaDeviceProp::name, e.g. "NVIDIA H100 80GB HBM3"
  std::string_view name;       // name in the instance table, e.g. "H100"
  int capability;              // 90 for 9.0
  double bf16 = 0, fp8 = 0;    // with tensor cores
  double fp32 = 0;             // without tensor cores, as used by fp32 runs
  // The following values are set only for GPUs that `mpzero plan --gpu` supports; otherwise, they are 0.
  int gigabytes = 0;     // memory in the instance table, GB
  double gibibytes = 0;  // "total capacity" in PyTorch's messages, GiB
  double nvlink = 0;     // GB/s from one GPU to all others, per direction; 0: PCIe only
  double pcie = 0;       // GB/s of 16 PCIe lanes, per direction
  int multiprocessors = 0;
};

// Returns the table of GPUs. If several GPUs have the same `name`, the name refers to the first GPU.
std::span<const GpuModel> all_gpu_models();

// Returns the GPU with this name; nullptr if the table has no such GPU. Accepts CUDA's device name, and the name in the
// instance table with or without the memory size ("A100-80GB", "A100 80GB"). Names must match exactly: "NVIDIA GB200"
// and the names of MIG instances do not match shorter names.
const GpuModel* find_gpu_model(std::string_view name);

// Return the peak rate of the GPU with this name in FLOP/s; std::nullopt if unknown.
std::optional<double> dense_bf16_flops(std::string_view gpu_name);
std::optional<double> dense_fp8_flops(std::string_view gpu_name);
std::optional<double> fp32_flops(std::string_view gpu_name);

// Makes simulated devices model the GPU with this name, if known, or CPU ranks with `threads` threads.
void simulate_hardware(std::string_view gpu_name, int threads);

}  // namespace mpzero
