#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string_view>

#include "app/config/run_setup.hpp"

namespace mpzero {

// The vendor's dense bf16 rate in FLOP/s, without sparsity, of a GPU with this name in CUDA's spelling (e.g. "NVIDIA
// H100 80GB HBM3"); std::nullopt for a GPU that is not in the table.
std::optional<double> dense_bf16_flops(std::string_view gpu_name);

// The same of FP32 without tensor cores, in which a run in fp32 multiplies: nothing is rounded to TF32.
std::optional<double> fp32_flops(std::string_view gpu_name);

// How long this rank's part of a step would take at its GPU's dense bf16 rate; nothing where that is not known.
std::optional<double> peak_step_seconds(const RunSetup& setup, at::Device device, int world_size);

}  // namespace mpzero
