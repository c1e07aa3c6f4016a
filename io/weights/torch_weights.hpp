#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/weights/parameter_stream.hpp"

namespace mpzero::io {

// Writes weights into the existing `folder` as torch.save and DeepSpeed's zero_to_fp32.py do: pytorch_model.bin, or
// pytorch_model-00001-of-0000N.bin and pytorch_model.bin.index.json if they exceed `max_shard_bytes`. Each file holds
// an OrderedDict of tensors. An alias is a second name of the same tensor. Streams as write_safetensors does. All files
// are synced. Returns the files' names.
std::vector<std::string> write_torch_weights(const std::filesystem::path& folder,
                                             std::span<const ParameterSpec> parameters,
                                             std::span<const StoredCheckpoint::Alias> aliases,
                                             const ParameterSource& source, int64_t max_shard_bytes, WeightType type,
                                             const OnWritten& on_written, FileSystem& file_system = disk());

}  // namespace mpzero::io
