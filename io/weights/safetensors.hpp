#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_source.hpp"
#include "io/weights/parameter_stream.hpp"

namespace mpzero::io {

// Writes weights into the existing `folder` under Hugging Face's names: model.safetensors, or
// model-00001-of-0000N.safetensors and model.safetensors.index.json if they exceed `max_shard_bytes` (a larger tensor
// gets its own shard). Streams: holds a few MiB per thread, and reads `source` from several threads. All files are
// synced. Returns their names.
std::vector<std::string> write_safetensors(const std::filesystem::path& folder,
                                           std::span<const ParameterSpec> parameters, const ParameterSource& source,
                                           int64_t max_shard_bytes, const OnWritten& on_written = nullptr,
                                           WeightType type = WeightType::kFloat32, FileSystem& file_system = disk());

}  // namespace mpzero::io
