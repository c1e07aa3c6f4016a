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
// the safetensors library refuses: dtypes that the format does not define, tensors that overlap or whose length does
// not match their shape, and bytes that belong to no tensor. Also refuses duplicate names. Throws UserError naming file
// and tensor. `metadata` receives the texts of __metadata__.
std::map<std::string, StoredTensor> read_safetensors_header(const File& file,
                                                            std::map<std::string, std::string>* metadata = nullptr);

// Writes weights into the existing `folder` under Hugging Face's names, here for the stem "model": model.safetensors,
// or model-00001-of-0000N.safetensors and model.safetensors.index.json if they exceed `max_shard_bytes` (a larger
// tensor gets its own shard). Streams: holds a few MiB per thread, and reads `source` from several threads. All files
// are synced. `metadata`: texts for their headers. Returns the files' names.
std::vector<std::string> write_safetensors(const std::filesystem::path& folder,
                                           std::span<const ParameterSpec> parameters, const ParameterSource& source,
                                           int64_t max_shard_bytes, const OnWritten& on_written = nullptr,
                                           WeightType type = WeightType::kFloat32, FileSystem& file_system = disk(),
                                           const std::string& stem = "model",
                                           const std::map<std::string, std::string>& metadata = {});

}  // namespace mpzero::io
