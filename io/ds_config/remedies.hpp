#pragma once

#include <string>

namespace mpzero::io {

// Message texts shared by several sections of ds_config.json.
inline const std::string kRemoveIt = "remove it";
inline const std::string kOneLayerAtATime = "mpzero gathers and reduces one layer at a time";
inline const std::string kCheckpoints = "checkpoints go to --checkpoint_dir and load on any number of ranks";

}  // namespace mpzero::io
