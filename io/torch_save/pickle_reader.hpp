#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/torch_save/pickle_value.hpp"

namespace mpzero::io::pickle {

// Longer than any checkpoint's description of itself; the numbers are not in the pickle.
inline constexpr int64_t kMaxPickleBytes = int64_t{32} << 20;

// Reads a pickle of protocol 2 to 5 as torch.save writes it. Of all functions and classes only those are carried out
// that make plain values: OrderedDict, set, torch.Size, torch's tensors and storages, NumPy's scalars, DeepSpeed's
// ZeroStageEnum (an int). What else is called stays a kObject. Memory is bounded by a small multiple of the pickle's
// length; nothing recurses. Throws UserError naming `file` and the byte where it is damaged or holds an unknown opcode.
Document read(std::span<const std::byte> bytes, std::string file);

}  // namespace mpzero::io::pickle
