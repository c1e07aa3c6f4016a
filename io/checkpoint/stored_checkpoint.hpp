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
#include "base/parameter_spec.hpp"
#include "base/process_group.hpp"
#include "base/weight_source.hpp"
#include "io/checkpoint/carried_file.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/files/open_folder.hpp"

namespace mpzero::io {

// Thrown if another process replaced, removed or rewrote the checkpoint before it was read completely.
class ReplacedWhileRead final : public Error {
 public:
  ReplacedWhileRead(const std::filesystem::path& folder, OpenFolder::Change change)
      : Error(fmt::format("{} {} by another process while it was being read; run the command again", folder.string(),
                          name_of(change))),
        change_(change) {}
  OpenFolder::Change change() const { return change_; }
  int exit_code() const override { return kFailureExitCode; }

 private:
  OpenFolder::Change change_;
};

// A checkpoint in HDF5 or DeepSpeed format, written on any number of ranks with any ZeRO stage. Every rank reads only
// the slices that it needs. Throws UserError with the file name if a file is missing, truncated or modified.
// Thread-safe.
class StoredCheckpoint : public WeightSource {
 public:
  virtual const std::filesystem::path& folder() const = 0;
  // Returns the run that saved the checkpoint, or an empty record for DeepSpeed's own checkpoints.
  virtual const RunRecord& run() const = 0;
  // Returns the recorded progress. Fields that the checkpoint lacks have their default values; see made_by_mpzero().
  virtual const TrainingProgress& progress() const = 0;
  // Returns every parameter once. A tied lm_head is not listed.
  std::span<const ParameterSpec> parameters() const override = 0;
  // A second name of a stored parameter, for example of a tied lm_head.
  struct Alias {
    std::string name;
    std::string parameter;
  };
  virtual std::span<const Alias> aliases() const { return {}; }
  // Returns false for DeepSpeed's own checkpoints, which lack the seed, the data order and the model's config.json.
  virtual bool made_by_mpzero() const { return true; }
  // Returns the learning rate of the next update if the checkpoint records it.
  virtual std::optional<double> next_lr() const { return std::nullopt; }

  void check(const ParameterSpec& parameter) const override;
  const std::filesystem::path& file_of(const ParameterSpec& /*parameter*/) const override { return folder(); }

  // Reads elements [begin, begin + out.size()) of the row-major parameter. Throws UserError if the checkpoint does not
  // have these elements.
  void read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const;
  // Reads fp32 master weights.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const final {
    read(parameter.name, StateKind::kMaster, begin, out);
  }
  // Reads elements [begin, begin + out.size()) of a unit's concatenated parameters, even if the checkpoint has
  // different units.
  virtual void read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const;

  // Returns the number of ranks that saved carried state.
  virtual int64_t carrying_ranks() const { return 0; }
  // Returns the `wanted` values of a rank's carried state, or std::nullopt if the checkpoint has no carried state for
  // the rank. Throws Damaged if the rank's carried-state file is missing or damaged.
  virtual std::optional<StoredCarried> carried(int /*rank*/, std::span<const CarriedValues> /*wanted*/) const {
    return std::nullopt;
  }

  void verify_what_was_read(ProcessGroup& group) const override = 0;
  // Reads and verifies the whole checkpoint.
  virtual void verify() const = 0;

 protected:
  // Implements read() for an element of parameters() and a valid range.
  virtual void read_values(const ParameterSpec& parameter, StateKind kind, int64_t begin,
                           std::span<float> out) const = 0;
};

// Pairs of file name and checksum.
using FileChecksums = std::vector<std::pair<std::string, std::string>>;

// Throws unless all ranks have read the same version of each file. `read` lists the files that this rank has read,
// including at least one that every rank reads. Returns the checksums of all files. Collective.
std::map<std::string, std::string> check_same_files(const std::filesystem::path& folder, const FileChecksums& read,
                                                    ProcessGroup& group);

// Throws UserError, with the first mismatched parameter and its shapes, unless a run with the units `of_run` can resume
// from a checkpoint with the parameters `of_checkpoint`. The checkpoint may have different units.
void check_same_parameters(std::span<const ParameterSpec> of_checkpoint, std::span<const UnitSpec> of_run,
                           const std::filesystem::path& checkpoint);

}  // namespace mpzero::io
