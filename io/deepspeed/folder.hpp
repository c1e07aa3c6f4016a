#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/files/open_folder.hpp"
#include "io/torch_save/zip_reader.hpp"

namespace mpzero::io {

// The names of DeepSpeed's files, for runs without tensor or pipeline parallelism.
//
// "mp_rank_00_model_states.pt". At stage 3 there is one per rank: "zero_pp_rank_1_mp_rank_00_model_states.pt".
std::string deepspeed_model_file(int stage, int rank);
// "zero_pp_rank_1_mp_rank_00_optim_states.pt", with the prefix "bf16_" if the weights are bf16.
std::string deepspeed_optimizer_file(bool bf16, int rank);

// Whether `folder` (a tag folder) holds model states under one of these names.
bool is_deepspeed_checkpoint(const OpenFolder& folder);

// The files of one checkpoint in DeepSpeed's format, all opened in the same folder. In mpzero's own checkpoints each
// file is compared with the manifest, which rejects a file from another save. Thread-safe.
class DeepSpeedFolder {
 public:
  // Reads the manifest, if there is one, and checks the sizes of the files. Throws UserError naming the file.
  explicit DeepSpeedFolder(std::shared_ptr<const OpenFolder> folder);

  const OpenFolder& folder() const { return *folder_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }
  std::filesystem::path path_of(const std::string& name) const { return folder_->path() / name; }
  bool holds(const std::string& name) const { return folder_->holds(name); }
  // Throws UserError if the manifest lacks the file, or lists a different one with this name.
  std::unique_ptr<TorchZipReader> open(const std::string& name) const;

  // Checksums of the manifest and of the directories of all opened files.
  FileChecksums fingerprints() const;
  // For a folder without a manifest, whose files can be rewritten one by one: throws ReplacedWhileRead unless every
  // opened file is unchanged.
  void check_unchanged() const;

 private:
  std::shared_ptr<const OpenFolder> folder_;
  std::optional<Manifest> manifest_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, uint64_t> checksums_;  // of the directories of all opened files
};

}  // namespace mpzero::io
