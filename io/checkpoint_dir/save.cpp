#include "io/checkpoint_dir/save.hpp"

#include <fmt/chrono.h>

#include <chrono>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

// On a network file system, the folder that rank 0 created may appear on other hosts with a delay.
void wait_until_visible(const fs::path& folder) {
  constexpr auto kPatience = std::chrono::seconds(10);
  constexpr auto kPause = std::chrono::milliseconds(20);
  const auto start = std::chrono::steady_clock::now();
  std::error_code error;
  while (!fs::is_directory(folder, error) && std::chrono::steady_clock::now() - start < kPatience) {
    std::this_thread::sleep_for(kPause);
  }
}

std::string now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

std::unique_ptr<CheckpointWriter> open_writer(const SaveJob& job) {
  return make_writer(job.format, job.progress, job.shards, job.carried.get());
}

const std::string& writer_of(const SaveJob& job) { return job.start.empty() ? job.run.id : job.start; }

fs::path staging_of(const SaveJob& job) { return staging_folder(job.checkpoint_dir, job.tag, writer_of(job)); }

// Throws unless the save may replace the checkpoint in `folder`, which must be damaged or belong to the same run. An
// unreadable checkpoint or a checkpoint of a newer format may be complete and is not replaced.
void check_replaceable(const SaveJob& job, const fs::path& folder) {
  if (job.check_owner) job.check_owner();
  if (!path_exists(folder)) return;
  RunRecord there;
  try {
    there = run_of(folder);
  } catch (const Damaged&) {
    return;
  } catch (const Error& error) {
    throw UserError(fmt::format("{} may be a checkpoint of another run and was not replaced: {}",
                                (job.checkpoint_dir / job.tag).string(), error.what()),
                    ErrorScope::kThisRank, error.system_error());
  }
  if (there.id.empty() || job.run.id.empty() || there.id == job.run.id) return;
  throw_user_error("{} is a checkpoint of another run ({}; this is {}) and was not replaced; move it elsewhere",
                   (job.checkpoint_dir / job.tag).string(), show_run(there.id), show_run(job.run.id));
}

void append(std::vector<Leftover>& to, std::vector<Leftover> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

}  // namespace

std::vector<Leftover> begin_save(const SaveJob& job, ProcessGroup& group, FileSystem& files) {
  std::vector<Leftover> left;
  run_on_all_ranks(group, [&] {
    if (group.rank() != 0) return;
    check_replaceable(job, job.checkpoint_dir / job.tag);
    try {
      left = begin_staging(job.checkpoint_dir, job.tag, writer_of(job), files);
    } catch (...) {
      discard_save(job, files);
      throw;
    }
  });
  return left;
}

void discard_save(const SaveJob& job, FileSystem& files) noexcept {
  discard_staging(job.checkpoint_dir, job.tag, writer_of(job), files);
}

std::string write_shards(const SaveJob& job, int rank, const ShardValues& values, const WriteOptions& options) {
  const fs::path staging = staging_of(job);
  wait_until_visible(staging);
  return open_writer(job)->write_shards(staging, rank, values, options);
}

Published publish_save(const SaveJob& job, const std::vector<std::string>& shard_files, FileSystem& files) {
  const fs::path staging = staging_of(job);
  Published published;
  Manifest manifest;
  manifest.generation = next_generation(job.checkpoint_dir, &published.unread);
  manifest.saved_at = now();
  manifest.run = job.run;
  manifest.files = open_writer(job)->finish(staging, shard_files, files);
  write_manifest(staging, manifest, files);
  const auto check = [&](const fs::path& folder) { check_replaceable(job, folder); };
  if (job.check_owner) job.check_owner();
  append(published.left, publish(job.checkpoint_dir, job.tag, writer_of(job), check, files));
  for (const ManifestFile& file : manifest.files) published.bytes += file.size;
  try {
    if (job.check_owner) job.check_owner();
    append(published.left, prune_checkpoints(job.checkpoint_dir, job.model_type, job.run.id, job.keep_last, files));
  } catch (const std::exception& error) {
    published.remark = fmt::format("older checkpoints were not deleted: {}", error.what());
  }
  return published;
}

Published save_checkpoint(const SaveJob& job, const ShardValues& values, ProcessGroup& group, FileSystem& files) {
  const bool leader = group.rank() == 0;
  std::vector<Leftover> left = begin_save(job, group, files);
  try {
    std::string shard_file;
    run_on_all_ranks(group, [&] { shard_file = write_shards(job, group.rank(), values, {.files = &files}); });
    const std::vector<std::string> shard_files = all_gather(group, shard_file);
    Published published;
    run_on_all_ranks(group, [&] {
      if (leader) published = publish_save(job, shard_files, files);
    });
    append(published.left, std::move(left));
    return published;
  } catch (...) {
    if (leader) discard_save(job, files);
    throw;
  }
}

}  // namespace mpzero::io
