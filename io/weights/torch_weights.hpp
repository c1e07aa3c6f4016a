#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/weights/parameter_stream.hpp"

namespace mpzero::io {

// Writes weights to the existing `folder` in the format of torch.save and DeepSpeed's zero_to_fp32.py: as
// pytorch_model.bin or, if they exceed `max_shard_bytes`, as pytorch_model-00001-of-0000N.bin and
// pytorch_model.bin.index.json. Each file contains an OrderedDict of tensors. An alias refers to the tensor of the
// aliased parameter. Streams the data like write_safetensors(). Syncs all files and returns their names.
std::vector<std::string> write_torch_weights(const std::filesystem::path& folder,
                                             std::span<const ParameterSpec> parameters,
                                             std::span<const StoredCheckpoint::Alias> aliases,
                                             const ParameterSource& source, int64_t max_shard_bytes, WeightType type,
                                             const OnWritten& on_written, FileSystem& file_system = disk());

}  // namespace mpzero::io
