#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <variant>

#include "io/checkpoint/carried_file.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/files/open_folder.hpp"

// The one place that chooses between the formats of checkpoints: mpzero's own (io/checkpoint) and DeepSpeed's
// (io/deepspeed). A new format is a StoredCheckpoint that reads it, a CheckpointWriter that writes it, its alternative
// of CheckpointFormat, and a line for each of them in formats.cpp.
namespace mpzero::io {

struct Hdf5Format {};
// What a checkpoint is written as.
using CheckpointFormat = std::variant<Hdf5Format, DeepSpeedSettings>;

// Whether `folder` holds what open_checkpoint() takes for a checkpoint, complete or not. Without a manifest it is one
// that another program saved.
bool looks_like_checkpoint(const OpenFolder& folder);
bool looks_like_checkpoint(const std::filesystem::path& folder);

// Opens a checkpoint's folder (not the one that holds `latest`). Throws UserError if it holds none of the formats.
// Where others may replace it meanwhile: io/checkpoint_dir/stable_read.hpp.
std::unique_ptr<StoredCheckpoint> open_checkpoint(std::shared_ptr<const OpenFolder> folder);
std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::filesystem::path& folder);

// The others outlive the writer. `carried`: see Hdf5Writer; DeepSpeed's format has no place for it. Throws Failure
// where the format cannot hold the rest.
std::unique_ptr<CheckpointWriter> make_writer(const CheckpointFormat& format, const TrainingProgress& progress,
                                              std::span<const UnitShard> shards, const CarriedState* carried = nullptr);

}  // namespace mpzero::io
