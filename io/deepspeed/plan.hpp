#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/torch_save/zip_writer.hpp"

namespace mpzero::io {

// Partitioning of parameters in DeepSpeed's ZeRO. The parameters of a group are concatenated in one flat fp32 vector,
// which is split over the ranks.
//
// Stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py) pad the flat group to a multiple of 2 · ranks and split it
// into equal partitions. Stage 3 (stage3.py) splits each parameter into one piece of ceil(numel / ranks) elements per
// rank and pads the last piece. A rank's flat group is the concatenation of its pieces.
class DeepSpeedLayout {
 public:
  struct Group {
    std::vector<ParameterSpec> parameters;  // in the order of the flat group
    // Number of padding elements after each parameter (stages 1 and 2 with zero_optimization.parameter_alignment);
    // empty if parameters are not padded.
    std::vector<int64_t> paddings;
  };

  // Elements [begin, begin + count) of a parameter, at `offset` in the rank's partition of the group.
  struct Slice {
    size_t group = 0;
    int rank = 0;
    int64_t offset = 0;
    int64_t begin = 0;
    int64_t count = 0;
  };

  // Throws UserError if a size overflows or a name is duplicated. `file` is used in messages.
  DeepSpeedLayout(std::vector<Group> groups, int stage, int ranks, const std::string& file);

  int stage() const { return stage_; }
  int ranks() const { return ranks_; }
  const std::vector<Group>& groups() const { return groups_; }
  std::vector<ParameterSpec> parameters() const;

  // Returns the number of elements in each rank's partition of the group, including padding.
  int64_t partition_numel(size_t group) const { return partition_numels_[group]; }
  // Returns the number of elements before the padding at the end of the partition: all elements in stage 3.
  int64_t used_numel(size_t group, int rank) const;
  // Returns true if the rank's partitions contain parameter elements, not only padding.
  bool holds_weights(int rank) const;
  // Returns the offset of a parameter in the flat group. Valid only for stages 1 and 2.
  int64_t flat_offset(const std::string& parameter) const { return places_.at(parameter).offset; }

  // Calls `visit` with each rank's slice of the parameter's elements [begin, end). Returns false for unknown
  // parameters.
  bool visit(const std::string& parameter, int64_t begin, int64_t end,
             const std::function<void(const Slice&)>& visit) const;

 private:
  struct Place {
    size_t group;
    int64_t offset;  // in the flat group (stages 1 and 2) or in each rank's partition (stage 3)
    int64_t numel;
  };

  int stage_;
  int ranks_;
  std::vector<Group> groups_;
  std::vector<int64_t> partition_numels_;
  std::vector<int64_t> flat_numels_;
  std::map<std::string, Place> places_;
};

// Optimizer hyperparameters in DeepSpeed's files.
struct DeepSpeedOptimizer {
  double next_lr = 0;  // learning rate of the next update
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  bool bias_correction = true;
  double gradient_clipping = 0;
};

struct DeepSpeedSettings {
  int ranks = 1;  // DeepSpeed must resume on the same number of ranks
  DeepSpeedOptimizer optimizer;
  // zero_optimization.sub_group_size, in elements per rank. The value determines the parameter groups of stage 3.
  // DeepSpeed must resume with the same sub_group_size.
  int64_t sub_group_size = 1'000'000'000;
};

// All files of a checkpoint in DeepSpeed format, with the names, layout and metadata of DeepSpeed's engine on `ranks`
// ranks. engine.load_checkpoint and zero_to_fp32.py of DeepSpeed 0.19.8 can read the files. The plan depends only on
// its arguments, so every rank computes the same file offsets.
//
// Stage 0 uses the files of stage 1, although DeepSpeed has a separate format for stage 0.
class DeepSpeedPlan {
 public:
  DeepSpeedPlan(const TrainingProgress& progress, std::span<const UnitSpec> units, const DeepSpeedSettings& settings);

  struct PlannedFile {
    std::string name;
    TorchZipLayout layout;
    std::vector<int64_t> padding_bytes;  // per storage
  };
  const std::vector<PlannedFile>& files() const { return files_; }
  const DeepSpeedLayout& layout() const { return layout_; }

  // A position within a storage of a file.
  struct Place {
    size_t file = 0;
    size_t storage = 0;
    int64_t offset = 0;  // in bytes
  };
  // Returns the position of a slice from DeepSpeedLayout::visit().
  Place place(const DeepSpeedLayout::Slice& slice, StateKind kind) const;
  // Stages 1 and 2 store all weights in the compute dtype in the model file. module_place() returns their positions.
  bool has_module() const { return layout_.stage() != 3; }
  Place module_place(const std::string& parameter, int64_t begin) const;
  int64_t module_element_bytes() const { return bf16_ ? 2 : 4; }

 private:
  void add_model_files(const TrainingProgress& progress, const DeepSpeedSettings& settings);
  void add_optimizer_file(int rank, const TrainingProgress& progress, const DeepSpeedSettings& settings);

  bool bf16_;
  DeepSpeedLayout layout_;
  std::vector<PlannedFile> files_;
  size_t num_model_files_ = 0;
};

}  // namespace mpzero::io
