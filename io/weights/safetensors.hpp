#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_source.hpp"
#include "base/parameter_spec.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/weights/parameter_stream.hpp"

// A safetensors file consists of the header length (8 bytes, little-endian), a JSON header with dtype, shape and
// data_offsets by name, and the tensor data. See https://github.com/huggingface/safetensors#format.
namespace mpzero::io {

struct StoredTensor {
  std::string dtype;  // "F32", "BF16", "F16", ...
  std::vector<int64_t> shape;
  int64_t offset = 0;  // position of the first byte in the file
  int64_t bytes = 0;
};

// Returns the number of bytes per element, or 0 for a dtype that cannot be converted to fp32.
int64_t element_bytes(const std::string& dtype);

// Reads and validates the header. Checks all lengths against the file size before memory is allocated. Like the
// safetensors library, rejects unknown dtypes, overlapping tensors, lengths that do not match the shape, and unused
// bytes. Also rejects duplicate names. Throws UserError if the file is invalid. Stores the __metadata__ entry in
// `metadata`.
std::map<std::string, StoredTensor> read_safetensors_header(const File& file,
                                                            std::map<std::string, std::string>* metadata = nullptr);

// Writes weights to the existing `folder` as model.safetensors or, if they exceed `max_shard_bytes`, as
// model-00001-of-0000N.safetensors and model.safetensors.index.json. A tensor larger than `max_shard_bytes` is a
// separate shard. `stem` replaces "model" in the file names. Streams the data through a buffer of a few MiB per thread.
// Reads `source` from several threads. `metadata`: __metadata__ entry of each header. Syncs all files and returns their
// names.
std::vector<std::string> write_safetensors(const std::filesystem::path& folder,
                                           std::span<const ParameterSpec> parameters, const ParameterSource& source,
                                           int64_t max_shard_bytes, const OnWritten& on_written = nullptr,
                                           WeightType type = WeightType::kFloat32, FileSystem& file_system = disk(),
                                           const std::string& stem = "model",
                                           const std::map<std::string, std::string>& metadata = {});

}  // namespace mpzero::io
