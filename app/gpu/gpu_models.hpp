#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace mpzero {

// What data sheets say of one GPU. Rates are dense, without sparsity, in TFLOP/s; 0: the GPU has none, or no document
// of NVIDIA gives it.
struct GpuModel {
  std::string_view cuda_name;  // cudaDeviceProp::name, e.g. "NVIDIA H100 80GB HBM3"
  std::string_view name;       // in the table of instances, e.g. "H100"
  int capability;              // 90 for 9.0
  double bf16 = 0, fp8 = 0;    // of tensor cores
  double fp32 = 0;             // without tensor cores, in which a run in fp32 multiplies
  // Of the GPUs that `mpzero plan --gpu` knows; 0: of the others.
  int gigabytes = 0;     // of its memory, in the table of instances
  double gibibytes = 0;  // "total capacity" in PyTorch's messages
  double nvlink = 0;     // GB/s of one GPU to the others, per direction; 0: PCIe only
  double pcie = 0;       // GB/s of 16 lanes of its generation, per direction
};

// The only table of GPUs. Of several with one `name` the first is meant where the name alone is given.
std::span<const GpuModel> all_gpu_models();

// The GPU with exactly this name: CUDA's, that of the table of instances, or the latter with its memory ("A100-80GB",
// "A100 80GB"). nullptr: it is not in the table. A name that only contains another one (a MIG instance, "NVIDIA GB200")
// is not that GPU.
const GpuModel* find_gpu_model(std::string_view name);

// Of the GPU with this name in FLOP/s; std::nullopt: not known.
std::optional<double> dense_bf16_flops(std::string_view gpu_name);
std::optional<double> dense_fp8_flops(std::string_view gpu_name);
std::optional<double> fp32_flops(std::string_view gpu_name);

}  // namespace mpzero
