#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/files/atomic_file.hpp"

// The layout of a safetensors file: 8 bytes little-endian length of the header, the header (JSON, name to dtype, shape
// and data_offsets), then the tensors' bytes; see https://github.com/huggingface/safetensors#format.
namespace mpzero::io {

struct StoredTensor {
  std::string dtype;  // "F32", "BF16", "F16", ...
  std::vector<int64_t> shape;
  int64_t offset = 0;  // of its first byte in the file
  int64_t bytes = 0;
};

// Bytes per element. 0 for a dtype that cannot be converted to fp32.
int64_t element_bytes(const std::string& dtype);

// Reads and checks the header. Every length is bounded by the file's size before anything is allocated. Refuses what
// the safetensors library refuses: types that the format does not define, tensors that overlap or whose length does not
// match their shape, and bytes that belong to no tensor. Also refuses duplicate names. Throws UserError naming file and
// tensor.
std::map<std::string, StoredTensor> read_safetensors_header(const File& file);

// The 8 bytes and the header of a file that holds `parameters` contiguously as F32 or BF16, in this order. Its length
// is a multiple of 8.
std::string safetensors_header(std::span<const ParameterSpec> parameters, WeightType type);

}  // namespace mpzero::io
