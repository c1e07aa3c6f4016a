#pragma once

#include <optional>
#include <string_view>

namespace mpzero {

// The vendor's dense bf16 rate in FLOP/s, without sparsity, of a GPU with this name in CUDA's spelling (e.g. "NVIDIA
// H100 80GB HBM3"); std::nullopt for a GPU that is not in the table.
std::optional<double> dense_bf16_flops(std::string_view gpu_name);

}  // namespace mpzero
