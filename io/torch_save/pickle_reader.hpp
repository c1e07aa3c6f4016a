#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/torch_save/pickle_value.hpp"

namespace mpzero::io::pickle {

// Larger than any checkpoint's pickle, which excludes the tensors' values.
inline constexpr int64_t kMaxPickleBytes = int64_t{32} << 20;

// Reads a pickle of protocol 2 to 5 as torch.save writes it. Only functions and classes that make plain values are
// evaluated: OrderedDict, set, torch.Size, torch's tensors and storages, NumPy's scalars, DeepSpeed's ZeroStageEnum (an
// int). Any other call becomes a kObject. Memory is bounded by a small multiple of the pickle's length; nothing
// recurses. Throws UserError naming `file` and the byte if it is damaged or holds an unknown opcode.
Document read(std::span<const std::byte> bytes, std::string file);

}  // namespace mpzero::io::pickle
