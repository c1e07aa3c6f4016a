#pragma once

#include <optional>
#include <string_view>

namespace mpzero {

// The dense bf16 rate in FLOP/s, without sparsity, that the vendor gives for a GPU of this name, as CUDA spells it
// (e.g. "NVIDIA H100 80GB HBM3"); nothing for a GPU that is not in the table.
std::optional<double> dense_bf16_flops(std::string_view gpu_name);

}  // namespace mpzero
