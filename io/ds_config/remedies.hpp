#pragma once

#include <string>

namespace mpzero::io {

// Remedies for keys of ds_config.json, and what happens instead of what they request, shared by several sections.
inline const std::string kRemoveIt = "remove it";
inline const std::string kOneLayerAtATime =
    "it gathers and reduces one layer at a time, whatever the settings of DeepSpeed's hooks and flat buffers";
inline const std::string kCheckpoints =
    "checkpoints always go to --checkpoint_dir, are checked when read, and load on any number of ranks";

}  // namespace mpzero::io
