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

// File names of DeepSpeed runs without tensor or pipeline parallelism.
//
// Returns "mp_rank_00_model_states.pt" or, for stage 3, one name per rank: "zero_pp_rank_1_mp_rank_00_model_states.pt".
std::string deepspeed_model_file(int stage, int rank);
// Returns "zero_pp_rank_1_mp_rank_00_optim_states.pt", with the prefix "bf16_" for bf16 weights.
std::string deepspeed_optimizer_file(bool bf16, int rank);

// Returns true if the tag folder `folder` contains DeepSpeed model states.
bool is_deepspeed_checkpoint(const OpenFolder& folder);

// The files of one checkpoint in DeepSpeed format, opened relative to the same folder handle. If a manifest exists,
// rejects files that do not match it, for example files from another save. Thread-safe.
class DeepSpeedFolder {
 public:
  // Reads the manifest, if it exists, and checks the sizes of the files. Throws UserError if a size differs from the
  // manifest.
  explicit DeepSpeedFolder(std::shared_ptr<const OpenFolder> folder);

  const OpenFolder& folder() const { return *folder_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }
  std::filesystem::path path_of(const std::string& name) const { return folder_->path() / name; }
  bool holds(const std::string& name) const { return folder_->holds(name); }
  // Opens a file of the checkpoint. Throws UserError if the file differs from its manifest entry or has no entry.
  std::unique_ptr<TorchZipReader> open(const std::string& name) const;

  // Returns checksums of the manifest and of the ZIP central directories of all opened files.
  FileChecksums fingerprints() const;
  // Throws ReplacedWhileRead if an opened file has changed. Does nothing if a manifest exists.
  void check_unchanged() const;

 private:
  std::shared_ptr<const OpenFolder> folder_;
  std::optional<Manifest> manifest_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, uint64_t> checksums_;  // checksums of the ZIP central directories of all opened files
};

}  // namespace mpzero::io
