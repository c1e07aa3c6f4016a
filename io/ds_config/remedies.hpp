#pragma once

#include <string>

namespace mpzero::io {

// Text of messages that several sections of ds_config.json share.
inline const std::string kRemoveIt = "remove it";
inline const std::string kOneLayerAtATime = "mpzero gathers and reduces one layer at a time";
inline const std::string kCheckpoints = "checkpoints go to --checkpoint_dir and load on any number of ranks";

}  // namespace mpzero::io
