#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parameter_source.hpp"
#include "base/parameter_spec.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint/carried_file.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/files/open_folder.hpp"

namespace mpzero::io {

// The checkpoint was replaced, removed or rewritten by another process before it was read in full.
class ReplacedWhileRead final : public Error {
 public:
  ReplacedWhileRead(const std::filesystem::path& folder, OpenFolder::Change change)
      : Error(fmt::format("{} {} by another process while it was being read: start again", folder.string(),
                          name_of(change))),
        change_(change) {}
  OpenFolder::Change change() const { return change_; }
  int exit_code() const override { return kFailureExitCode; }

 private:
  OpenFolder::Change change_;
};

// A checkpoint of either format, HDF5 or DeepSpeed's, written by any number of ranks and any ZeRO stage: every rank
// reads only the slices that it needs. A missing, truncated or modified file throws UserError naming it. Thread-safe.
class StoredCheckpoint {
 public:
  virtual ~StoredCheckpoint() = default;

  virtual const std::filesystem::path& folder() const = 0;
  // The run that saved it; empty for DeepSpeed's own checkpoints.
  virtual const RunRecord& run() const = 0;
  // Unknown fields keep their defaults; see made_by_mpzero().
  virtual const TrainingProgress& progress() const = 0;
  // Every trained weight, once: a tied head is not listed.
  virtual std::span<const ParameterSpec> parameters() const = 0;
  // A weight with two names: `name` is not stored, `parameter` is.
  struct Alias {
    std::string name;
    std::string parameter;
  };
  virtual std::span<const Alias> aliases() const { return {}; }
  // False if DeepSpeed itself wrote it: such a checkpoint lacks the seed, the data order and the model's config.json.
  virtual bool made_by_mpzero() const { return true; }
  // The learning rate of the next update, if the checkpoint records it.
  virtual std::optional<double> next_lr() const { return std::nullopt; }
  // Warnings for a run that resumes from it, one sentence each.
  virtual std::span<const std::string> warnings() const { return {}; }

  // Reads elements [begin, begin + out.size()) of the row-major parameter.
  virtual void read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const = 0;
  // The same for a unit's concatenated parameters, however the checkpoint groups them.
  virtual void read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const;

  // Number of ranks with error feedback in the checkpoint.
  virtual int64_t carrying_ranks() const { return 0; }
  // The `wanted` values that the rank carried; std::nullopt: the checkpoint has no carried state of the rank. Throws
  // Damaged if the rank's file, which nothing else needs, is missing or damaged.
  virtual std::optional<StoredCarried> carried(int /*rank*/, std::span<const CarriedValues> /*wanted*/) const {
    return std::nullopt;
  }

  // Collective: throws on every rank unless everything that any rank has read so far is intact and from one save.
  virtual void verify_what_was_read(ProcessGroup& group) const = 0;
  // Reads and verifies the whole checkpoint.
  virtual void verify() const = 0;
};

// The checksums of files, by name.
using FileChecksums = std::vector<std::pair<std::string, std::string>>;

// Collective: throws unless all ranks have read the same files. `read`: the files that this rank has read, including at
// least one that every rank reads. Returns the checksums of all files.
std::map<std::string, std::string> check_same_files(const std::filesystem::path& folder, const FileChecksums& read,
                                                    ProcessGroup& group);

// Throws UserError naming the first parameter that differs and both shapes, unless a run with the units `of_run` can
// resume from a checkpoint with the parameters `of_checkpoint`, however the checkpoint groups them.
void check_same_parameters(std::span<const ParameterSpec> of_checkpoint, std::span<const UnitSpec> of_run,
                           const std::filesystem::path& checkpoint);

// The fp32 master weights of a checkpoint. `checkpoint` must outlive it.
class StoredWeights final : public ParameterSource {
 public:
  explicit StoredWeights(const StoredCheckpoint& checkpoint) : checkpoint_(&checkpoint) {}
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    checkpoint_->read(parameter.name, StateKind::kMaster, begin, out);
  }

 private:
  const StoredCheckpoint* checkpoint_;
};

}  // namespace mpzero::io
