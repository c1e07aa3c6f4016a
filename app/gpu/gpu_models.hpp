#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace mpzero {

// Data sheet values of one GPU. Rates are dense, without sparsity, in TFLOP/s; 0: unsupported, or not published by
// NVIDIA.
struct GpuModel {
  std::string_view cuda_name;  // cudaDeviceProp::name, e.g. "NVIDIA H100 80GB HBM3"
  std::string_view name;       // in the table of instances, e.g. "H100"
  int capability;              // 90 for 9.0
  double bf16 = 0, fp8 = 0;    // with tensor cores
  double fp32 = 0;             // without tensor cores, as fp32 runs multiply
  // Only for GPUs that `mpzero plan --gpu` knows; 0 for others.
  int gigabytes = 0;     // of memory, in the table of instances
  double gibibytes = 0;  // "total capacity" in PyTorch's messages
  double nvlink = 0;     // GB/s from one GPU to the others, per direction; 0: PCIe only
  double pcie = 0;       // GB/s of 16 lanes of its PCIe generation, per direction
};

// The only table of GPUs. If several share a `name`, the bare name means the first of them.
std::span<const GpuModel> all_gpu_models();

// The GPU with exactly this name: CUDA's name, the name in the table of instances, or the latter with its memory
// ("A100-80GB", "A100 80GB"). nullptr: not in the table. A name that only contains another one (a MIG instance, "NVIDIA
// GB200") does not match it.
const GpuModel* find_gpu_model(std::string_view name);

// Peak rate of the GPU with this name in FLOP/s; std::nullopt: unknown.
std::optional<double> dense_bf16_flops(std::string_view gpu_name);
std::optional<double> dense_fp8_flops(std::string_view gpu_name);
std::optional<double> fp32_flops(std::string_view gpu_name);

}  // namespace mpzero
