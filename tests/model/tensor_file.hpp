#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

namespace mpzero::model {

// Returns all tensors of a safetensors file (F32, BF16, I64). Supports only this folder's fixtures, without validation.
std::map<std::string, at::Tensor> read_tensor_file(const std::filesystem::path& path);

// Returns a one-dimensional uint16 NumPy array as int64.
at::Tensor read_uint16_npy(const std::filesystem::path& path);

}  // namespace mpzero::model
