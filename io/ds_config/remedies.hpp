#pragma once

#include <string>

namespace mpzero::io {

// Remedies for keys of ds_config.json, and what happens instead of what they request, shared by several sections.
inline const std::string kRemoveIt = "remove it";
inline const std::string kOneLayerAtATime = "mpzero gathers and reduces one layer at a time";
inline const std::string kCheckpoints = "checkpoints go to --checkpoint_dir and load on any number of ranks";

}  // namespace mpzero::io
