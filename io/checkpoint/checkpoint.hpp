#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/optimizer_state.hpp"
#include "base/parameter_source.hpp"
#include "base/parameter_spec.hpp"
#include "base/process_group.hpp"
#include "io/files/file_system.hpp"

namespace mpzero::io {

using mpzero::StateKind;

class OpenFolder;
struct Manifest;

// One rank's share of a flat unit: elements [begin, begin + count) of the unit's concatenated parameters. Padding at
// the end of the flat buffer is not part of it: begin + count <= unit.numel(), and count may be 0.
struct UnitShard {
  const UnitSpec* unit = nullptr;
  int64_t begin = 0;
  int64_t count = 0;
};

// What a run needs beside the weights and moments to go on as if it had not stopped.
struct TrainingProgress {
  int64_t step = 0;  // optimizer steps done: also the position of the schedule and of the data
  int64_t tokens_seen = 0;
  int64_t windows_seen = 0;  // training windows consumed by all ranks together: the data position
  uint64_t seed = 0;         // of the weights and of the shuffle
  // Which windows there are and in which order, in words; a run with others cannot take up the data where they stopped.
  std::string data_order;
  double lr = std::numeric_limits<double>::quiet_NaN();  // applied in the last step; NaN: not known
  std::string dtype;                                     // "bf16" or "fp32"
  int zero_stage = 0;
  std::string model_config_json;  // the Hugging Face config.json
  std::string run_config_json;    // the ds_config in force, for the record
  // A JSON object of what decided the run's numbers beside the model, as it was resolved from file, flags and defaults;
  // empty: not recorded. Of DeepSpeed's own checkpoints it has what their optimizer says.
  std::string settings_json;
};

// Writes `<checkpoint_dir>/<tag>/` from all ranks, then points `<checkpoint_dir>/latest` at it, atomically and last.
// Collective. `fetch(i, kind)` yields this rank's `shards[i].count` values; the span must stay valid until the next
// call of fetch. Every rank lists every unit, in the model's order. Shards that several ranks hold alike (ZeRO stage 0)
// are given by rank 0 alone; the others give count 0. Throws on every rank if any rank could not write; then `latest`
// and everything it names are as before.
void save_checkpoint(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                     const TrainingProgress& progress, std::span<const UnitShard> shards,
                     const std::function<std::span<const float>(size_t shard, StateKind kind)>& fetch,
                     ProcessGroup& group);

// The checkpoint that `<checkpoint_dir>/latest` names, if there is such a file. Throws UserError naming both where it
// names nothing.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& checkpoint_dir);

// The checkpoint that a user means by `folder`: `tag` in it, or, without a tag, `folder` itself or what its `latest`
// names. Throws UserError if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& folder, const std::string& tag = "");

// An opened checkpoint: any rank reads any slice, whatever number of ranks and ZeRO stage wrote it. What is missing,
// cut short or changed throws UserError naming the file. May be used from several threads at once.
class CheckpointReader {
 public:
  // Opens `folder` (a tag folder) and checks its manifest, that the files it lists hold all values, their sizes and the
  // model states. Values are verified against their checksums as they are read, in blocks of 4 MiB, each block once.
  explicit CheckpointReader(const std::filesystem::path& folder);
  explicit CheckpointReader(std::shared_ptr<const OpenFolder> folder);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  const std::filesystem::path& folder() const;
  const Manifest& manifest() const;
  const TrainingProgress& progress() const;
  const std::vector<UnitSpec>& units() const;
  // Elements [begin, begin + out.size()) of the named unit's concatenated parameters.
  void read(const std::string& unit, StateKind kind, int64_t begin, std::span<float> out) const;
  // Elements of one parameter, row-major.
  void read_parameter(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const;
  // Reads and verifies all that has not been verified yet.
  void verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The fp32 master weights of a checkpoint as initial or final weights. `reader` must outlive it.
class CheckpointSource final : public ParameterSource {
 public:
  explicit CheckpointSource(const CheckpointReader& reader) : reader_(&reader) {}
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

 private:
  const CheckpointReader* reader_;
};

// Throws UserError, one sentence that names the first parameter that differs and both shapes, unless a run with the
// units `of_run` can go on from a checkpoint with the units `of_checkpoint`.
void check_same_model(std::span<const UnitSpec> of_checkpoint, std::span<const UnitSpec> of_run,
                      const std::filesystem::path& checkpoint);

}  // namespace mpzero::io
