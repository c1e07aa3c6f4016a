#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/torch_save/pickle_value.hpp"

namespace mpzero::io::pickle {

// Size limit for pickles, in bytes. Pickles of checkpoints are smaller because they do not contain tensor data.
inline constexpr int64_t kMaxPickleBytes = int64_t{32} << 20;

// Reads a torch.save pickle of protocol 2 to 5 without executing code. Supports OrderedDict, set, torch.Size, torch
// tensors and storages, NumPy scalars and DeepSpeed's ZeroStageEnum (an int). Other functions and classes produce a
// kObject. Memory usage is bounded by a small multiple of the pickle's length, and the parser is not recursive. Throws
// UserError, with `file` and the byte position, if the pickle is damaged or contains an unknown opcode.
Document read(std::span<const std::byte> bytes, std::string file);

}  // namespace mpzero::io::pickle
