#pragma once

#include <span>
#include <string>

#include "io/torch_save/pickle_value.hpp"

namespace mpzero::io::pickle {

// Sets `made` to the result of calling the function or class `name` ("module name") with `arguments`. Unknown names
// produce a kObject. Returns nullptr, or a description of invalid arguments.
const char* construct(const std::string& name, std::span<const Node* const> arguments, Node& made);

// Sets `storage` from a persistent id of torch.save: ("storage", class, key, device, number of elements). Returns
// nullptr, or a description of the error.
const char* fill_storage(const Node& id, Node& storage);

}  // namespace mpzero::io::pickle
