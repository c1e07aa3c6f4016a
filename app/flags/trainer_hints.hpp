#pragma once

#include <optional>
#include <string>

namespace mpzero {

// What to do instead of a flag of the Hugging Face Trainer, or of its example scripts, that mpzero does not have: the
// end of a sentence. Nothing: no such flag is known. `name` has no dashes.
std::optional<std::string> trainer_hint(const std::string& name);

}  // namespace mpzero
