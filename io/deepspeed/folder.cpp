#include "io/deepspeed/folder.hpp"

#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/files/damaged.hpp"

namespace mpzero::io {

std::string deepspeed_model_file(int stage, int rank) {
  return stage == 3 ? fmt::format("zero_pp_rank_{}_mp_rank_00_model_states.pt", rank) : "mp_rank_00_model_states.pt";
}

std::string deepspeed_optimizer_file(bool bf16, int rank) {
  return fmt::format("{}zero_pp_rank_{}_mp_rank_00_optim_states.pt", bf16 ? "bf16_" : "", rank);
}

bool is_deepspeed_checkpoint(const OpenFolder& folder) {
  return folder.holds(deepspeed_model_file(2, 0)) || folder.holds(deepspeed_model_file(3, 0));
}

DeepSpeedFolder::DeepSpeedFolder(std::shared_ptr<const OpenFolder> folder) : folder_(std::move(folder)) {
  if (!folder_->holds(kManifestName)) return;
  manifest_ = read_manifest(*folder_);
  check_sizes(*folder_, *manifest_);
}

std::unique_ptr<TorchZipReader> DeepSpeedFolder::open(const std::string& name) const {
  const ManifestFile* entry = manifest_ ? manifest_->find(name) : nullptr;
  if (manifest_ && entry == nullptr) {
    throw_damaged(path_of(name),
                  fmt::format("{} does not list the file, so the file belongs to another save", kManifestName));
  }
  auto archive = std::make_unique<TorchZipReader>(folder_->open(name));
  const uint64_t checksum = archive->directory_checksum();
  if (entry != nullptr && entry->directory_checksum && *entry->directory_checksum != checksum) {
    throw_damaged(
        path_of(name),
        fmt::format("the file differs from its entry in {}, so the file belongs to another save", kManifestName));
  }
  const std::scoped_lock lock(mutex_);
  if (const auto [known, is_new] = checksums_.emplace(name, checksum); !is_new && known->second != checksum) {
    throw ReplacedWhileRead(folder_->path(), OpenFolder::Change::kRewritten);
  }
  return archive;
}

FileChecksums DeepSpeedFolder::fingerprints() const {
  FileChecksums checksums;
  if (manifest_) checksums.emplace_back(kManifestName, manifest_->checksum);
  const std::scoped_lock lock(mutex_);
  for (const auto& [name, checksum] : checksums_) checksums.emplace_back(name, to_hex(checksum));
  return checksums;
}

void DeepSpeedFolder::check_unchanged() const {
  if (manifest_) return;
  const auto fail = [&] { throw ReplacedWhileRead(folder_->path(), OpenFolder::Change::kRewritten); };
  const OpenFolder::Change change = folder_->change();
  if (change == OpenFolder::Change::kRewritten) fail();
  if (change != OpenFolder::Change::kNone) return;
  const std::scoped_lock lock(mutex_);
  // The modification time is not sufficient because its resolution is limited.
  for (const auto& [name, checksum] : checksums_) {
    try {
      if (read_zip_directory(folder_->open(name)).checksum == checksum) continue;
    } catch (const Error&) {
      if (folder_->change() == OpenFolder::Change::kNone) throw;
    }
    fail();
  }
}

}  // namespace mpzero::io
