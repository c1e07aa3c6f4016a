#pragma once

#include <span>
#include <string>

#include "io/torch_save/pickle_value.hpp"

namespace mpzero::io::pickle {

// Fills `made` with what the function or class `name` ("module name") makes of `arguments`: one of the few that make
// plain values, else a kObject that says its name. Returns nothing, or what is wrong with the arguments.
const char* construct(const std::string& name, std::span<const Node* const> arguments, Node& made);

// Fills `storage` from a persistent id of torch.save: ("storage", class, key, device, number of elements).
const char* fill_storage(const Node& id, Node& storage);

}  // namespace mpzero::io::pickle
