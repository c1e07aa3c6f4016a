#pragma once

#include <span>
#include <string>

#include "io/torch_save/pickle_value.hpp"

namespace mpzero::io::pickle {

// Fills `made` with the result of calling the function or class `name` ("module name") with `arguments`: a plain value
// for a few known names, otherwise a kObject that holds the name. Returns nullptr, or a description of the error in the
// arguments.
const char* construct(const std::string& name, std::span<const Node* const> arguments, Node& made);

// Fills `storage` from a persistent id of torch.save: ("storage", class, key, device, number of elements).
const char* fill_storage(const Node& id, Node& storage);

}  // namespace mpzero::io::pickle
