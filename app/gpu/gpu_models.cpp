#include "app/gpu/gpu_models.hpp"

#include <fmt/format.h>

#include <array>

#include "base/device/simulated.hpp"

namespace mpzero {
namespace {

// Rates: NVIDIA's data sheets at https://resources.nvidia.com or https://www.nvidia.com/en-us/data-center. Rates listed
// with sparsity are halved.
//   A100: "NVIDIA A100 Tensor Core GPU datasheet", same rates for SXM and PCIe
//   A10G: https://d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf
//   B200, GB200: "NVIDIA Blackwell Architecture Technical Brief", table 3: one GPU of HGX B200 or GB200
//   B300: https://www.nvidia.com/en-us/data-center/hgx, one eighth of HGX B300
//   GH200, H100, H200, L4, L40, L40S: the data sheet of that name; H100 and H200 by form factor
//   T4, V100: no bf16 (compute capability below 8.0)
// NVIDIA has not published dense bf16 rates for RTX PRO 4500 and 6000 Server Edition. NVLink: half of the data sheet
// values, which count both directions. Capability: https://developer.nvidia.com/cuda-gpus. CUDA's names: nvidia-smi on
// these GPUs. Multiprocessors: NVIDIA's architecture white papers.
constexpr std::array kModels = {
    GpuModel{"NVIDIA H200", "H200", 90, 989, 1979, 67, 141, 139.8, 450, 64, 132},
    GpuModel{"NVIDIA H200 NVL", "H200 NVL", 90, 835, 1671, 60},
    GpuModel{"NVIDIA H100 80GB HBM3", "H100", 90, 989, 1979, 67, 80, 79.1, 450, 64, 132},
    GpuModel{"NVIDIA H100 PCIe", "H100 PCIe", 90, 756, 1513, 51},
    GpuModel{"NVIDIA H100 NVL", "H100 NVL", 90, 835, 1671, 60},
    GpuModel{"NVIDIA GH200 480GB", "GH200", 90, 989, 1979, 67},
    GpuModel{"NVIDIA A100-SXM4-40GB", "A100", 80, 312, 0, 19.5, 40, 39.4, 300, 32, 108},
    GpuModel{"NVIDIA A100-SXM4-80GB", "A100", 80, 312, 0, 19.5, 80, 79.2, 300, 32, 108},
    GpuModel{"NVIDIA A100-PCIE-40GB", "A100 PCIe", 80, 312, 0, 19.5},
    GpuModel{"NVIDIA A100 80GB PCIe", "A100 PCIe", 80, 312, 0, 19.5},
    GpuModel{"NVIDIA L40S", "L40S", 89, 362, 733, 91.6, 48, 44.4, 0, 32, 142},
    GpuModel{"NVIDIA L40", "L40", 89, 181, 362, 90.5},
    GpuModel{"NVIDIA A10G", "A10G", 86, 70, 0, 31.5, 24, 22.0, 0, 32, 80},
    GpuModel{"NVIDIA A10", "A10", 86, 125, 0, 31.2},
    GpuModel{"NVIDIA L4", "L4", 89, 121, 242.5, 30.3, 24, 22.0, 0, 32, 58},
    GpuModel{"NVIDIA B200", "B200", 100, 2250, 4500, 0, 179, 178.3, 900, 64, 148},
    GpuModel{"NVIDIA GB200", "GB200", 100, 2500, 5000},
    GpuModel{"NVIDIA B300 SXM6 AC", "B300", 103, 2250, 4500},
    GpuModel{"NVIDIA GB300", "GB300", 103},
    GpuModel{"NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000", 120},
    GpuModel{"NVIDIA RTX PRO 4500 Blackwell Server Edition", "RTX PRO 4500", 120},
    GpuModel{"Tesla V100-SXM2-16GB", "V100", 70, 0, 0, 15.7},
    GpuModel{"Tesla V100-SXM2-32GB", "V100", 70, 0, 0, 15.7},
    GpuModel{"Tesla V100-PCIE-16GB", "V100 PCIe", 70, 0, 0, 14},
    GpuModel{"Tesla T4", "T4", 75, 0, 0, 8.1},
    GpuModel{"NVIDIA T4G", "T4G", 75, 0, 0, 8.1},
};

std::optional<double> flops(std::string_view gpu_name, double GpuModel::*rate) {
  const GpuModel* const model = find_gpu_model(gpu_name);
  return model != nullptr && model->*rate > 0 ? std::optional(model->*rate * 1e12) : std::nullopt;
}

}  // namespace

std::span<const GpuModel> all_gpu_models() { return kModels; }

const GpuModel* find_gpu_model(std::string_view name) {
  for (const GpuModel& model : kModels) {
    if (name == model.cuda_name || name == model.name) return &model;
    if (model.gigabytes == 0) continue;
    if (name == fmt::format("{}-{}GB", model.name, model.gigabytes)) return &model;
    if (name == fmt::format("{} {}GB", model.name, model.gigabytes)) return &model;
  }
  return nullptr;
}

std::optional<double> dense_bf16_flops(std::string_view gpu_name) { return flops(gpu_name, &GpuModel::bf16); }
std::optional<double> dense_fp8_flops(std::string_view gpu_name) { return flops(gpu_name, &GpuModel::fp8); }
std::optional<double> fp32_flops(std::string_view gpu_name) { return flops(gpu_name, &GpuModel::fp32); }

void simulate_hardware(std::string_view gpu_name, int threads) {
  simulated_target() = {.threads = threads};
  const GpuModel* const model = find_gpu_model(gpu_name);
  if (model == nullptr || model->multiprocessors == 0) return;
  simulated_target().multiprocessors = model->multiprocessors;
  simulated_target().flops_per_byte = model->bf16 / model->pcie * 1e3;
}

}  // namespace mpzero
