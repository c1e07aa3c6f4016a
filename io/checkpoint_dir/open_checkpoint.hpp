#pragma once

#include <filesystem>
#include <memory>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/files/open_folder.hpp"

namespace mpzero::io {

// Opens a checkpoint's folder (not the one that holds `latest`). Throws UserError if it holds neither format. Where
// others may replace it meanwhile: io/checkpoint_dir/stable_read.hpp.
std::unique_ptr<StoredCheckpoint> open_checkpoint(std::shared_ptr<const OpenFolder> folder);
std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::filesystem::path& folder);

// Whether `folder` holds what open_checkpoint() takes for a checkpoint, complete or not.
bool looks_like_checkpoint(const std::filesystem::path& folder);

}  // namespace mpzero::io
