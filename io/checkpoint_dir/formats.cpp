#include "io/checkpoint_dir/formats.hpp"

#include <utility>

#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/reader.hpp"
#include "io/checkpoint/writer.hpp"
#include "io/checkpoint_dir/foreign.hpp"
#include "io/deepspeed/checkpoint.hpp"
#include "io/deepspeed/folder.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;

bool looks_like_checkpoint(const OpenFolder& folder) {
  return folder.holds(kManifestName) || is_deepspeed_checkpoint(folder);
}

bool looks_like_checkpoint(const fs::path& folder) {
  return is_folder(folder) && looks_like_checkpoint(OpenFolder(folder));
}

std::unique_ptr<StoredCheckpoint> open_checkpoint(const fs::path& folder) {
  return open_checkpoint(std::make_shared<OpenFolder>(folder));
}

std::unique_ptr<StoredCheckpoint> open_checkpoint(std::shared_ptr<const OpenFolder> folder) {
  if (!folder->holds(kManifestName)) refuse_foreign(*folder);
  if (is_deepspeed_checkpoint(*folder)) return open_deepspeed_checkpoint(std::move(folder));
  return std::make_unique<Hdf5Checkpoint>(std::move(folder));
}

std::unique_ptr<CheckpointWriter> make_writer(const CheckpointFormat& format, const TrainingProgress& progress,
                                              std::span<const UnitShard> shards, const CarriedState* carried) {
  if (const auto* deepspeed = std::get_if<DeepSpeedSettings>(&format)) {
    return make_deepspeed_writer(progress, shards, *deepspeed);
  }
  return std::make_unique<Hdf5Writer>(progress, shards, carried);
}

}  // namespace mpzero::io
