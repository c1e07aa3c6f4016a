#include <chrono>
#include <system_error>
#include <thread>

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_files.hpp"
#include "io/checkpoint_folder.hpp"
#include "io/checkpoint_manifest.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

// A network file system may show this node a little later what rank 0 made on another.
void wait_until_visible(const fs::path& folder) {
  constexpr auto kPatience = std::chrono::seconds(10);
  constexpr auto kPause = std::chrono::milliseconds(20);
  const auto start = std::chrono::steady_clock::now();
  std::error_code error;
  while (!fs::is_directory(folder, error) && std::chrono::steady_clock::now() - start < kPatience) {
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

void save_checkpoint(const fs::path& checkpoint_dir, const std::string& tag, const TrainingProgress& progress,
                     std::span<const UnitShard> shards, const FetchShard& fetch, ProcessGroup& group) {
  const bool leader = group.rank() == 0;
  const fs::path staging = staging_folder(checkpoint_dir, tag);
  run_on_all_ranks(group, [&] {
    if (leader) begin_staging(checkpoint_dir, tag);
  });
  try {
    ManifestFile shard_file;
    run_on_all_ranks(group, [&] {
      wait_until_visible(staging);
      shard_file = write_optimizer_file(staging, optimizer_file_name(progress.dtype, group.rank()), shards, fetch);
    });
    const std::vector<std::string> shard_files = group.all_gather(shard_file.name.empty() ? "" : to_text(shard_file));
    run_on_all_ranks(group, [&] {
      if (!leader) return;
      ModelStates states{progress, {}};
      for (const UnitShard& shard : shards) states.units.push_back(*shard.unit);
      Manifest manifest;
      manifest.files.push_back(write_model_states(staging, states));
      for (const std::string& text : shard_files) {
        if (!text.empty()) manifest.files.push_back(manifest_file_from_text(text));
      }
      check_complete(manifest, states.units);
      write_manifest(staging, manifest);
      publish(checkpoint_dir, tag);
    });
  } catch (...) {
    if (leader) discard_staging(checkpoint_dir, tag);
    throw;
  }
}

}  // namespace mpzero::io
