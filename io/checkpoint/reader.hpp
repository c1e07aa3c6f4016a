#pragma once

#include <memory>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/files/open_folder.hpp"

namespace mpzero::io {

// Opens a checkpoint in mpzero's HDF5 format (io/checkpoint/shard_files.hpp). Checks the manifest, the completeness and
// sizes of the files, and the model states. Reads verify checksums in blocks of 4 MiB, each block once.
std::unique_ptr<StoredCheckpoint> open_hdf5_checkpoint(std::shared_ptr<const OpenFolder> folder);

}  // namespace mpzero::io
