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

// Where DeepSpeed's ZeRO stores each element: the parameters of a group are contiguous in one flat fp32 vector that is
// split over the ranks.
//
// Stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py): the flat group is padded to a multiple of 2 · ranks and cut
// into equal partitions. Stage 3 (stage3.py): each parameter is cut into one piece per rank of ceil(numel / ranks)
// elements, the last one padded, and a rank's flat group is the concatenation of its pieces.
class DeepSpeedLayout {
 public:
  struct Group {
    std::vector<ParameterSpec> parameters;  // in the order of the flat group
    // Padding after each parameter (stages 1 and 2 with zero_optimization.parameter_alignment). Empty: none.
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

  // Throws UserError if a size overflows or a name occurs twice. `file` is used in messages.
  DeepSpeedLayout(std::vector<Group> groups, int stage, int ranks, const std::string& file);

  int stage() const { return stage_; }
  int ranks() const { return ranks_; }
  const std::vector<Group>& groups() const { return groups_; }
  std::vector<ParameterSpec> parameters() const;

  // Number of elements of each rank's partition of the group, including padding.
  int64_t partition_numel(size_t group) const { return partition_numels_[group]; }
  // How many of them belong to the group's vector. The rest is padding at its end. Stage 3 counts the padding of its
  // pieces as used, since it is between them.
  int64_t used_numel(size_t group, int rank) const;
  // Whether the rank's partitions hold more than padding.
  bool holds_weights(int rank) const;
  // Offset of a parameter in the full flat group of stages 1 and 2.
  int64_t flat_offset(const std::string& parameter) const { return places_.at(parameter).offset; }

  // Calls visit for each range of elements of the parameter within [begin, end) that one rank holds. Returns false if
  // there is no such parameter.
  bool visit(const std::string& parameter, int64_t begin, int64_t end,
             const std::function<void(const Slice&)>& visit) const;

 private:
  struct Place {
    size_t group;
    int64_t offset;  // stages 1 and 2: in the flat group; stage 3: in each rank's partition
    int64_t numel;
  };

  int stage_;
  int ranks_;
  std::vector<Group> groups_;
  std::vector<int64_t> partition_numels_;
  std::vector<int64_t> flat_numels_;
  std::map<std::string, Place> places_;
};

// The optimizer's hyperparameters in DeepSpeed's files.
struct DeepSpeedOptimizer {
  double next_lr = 0;  // of the next update
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  bool bias_correction = true;
  double gradient_clipping = 0;
};

struct DeepSpeedSettings {
  int ranks = 1;  // DeepSpeed resumes on the same number
  DeepSpeedOptimizer optimizer;
  // zero_optimization.sub_group_size, in elements of a rank: how stage 3 groups the parameters. DeepSpeed resumes with
  // the same value.
  int64_t sub_group_size = 1'000'000'000;
};

// All files of a checkpoint in DeepSpeed's format, with the names, layout and metadata that its engine writes on
// `ranks` ranks: engine.load_checkpoint and zero_to_fp32.py of DeepSpeed 0.19.8 read them. Depends only on its
// arguments, so that every rank knows the position of its values in all files; ranks write into each other's files.
//
// For stage 0, which DeepSpeed saves differently, these are the files of stage 1.
class DeepSpeedPlan {
 public:
  DeepSpeedPlan(const TrainingProgress& progress, std::span<const UnitSpec> units, const DeepSpeedSettings& settings);

  struct PlannedFile {
    std::string name;
    TorchZipLayout layout;
    std::vector<int64_t> padding_bytes;  // per storage: bytes that no parameter fills
  };
  const std::vector<PlannedFile>& files() const { return files_; }
  const DeepSpeedLayout& layout() const { return layout_; }

  // A position in a storage of a file.
  struct Place {
    size_t file = 0;
    size_t storage = 0;
    int64_t offset = 0;  // in bytes
  };
  // The position of a slice from DeepSpeedLayout::visit().
  Place place(const DeepSpeedLayout::Slice& slice, StateKind kind) const;
  // The position of the model's weights in the compute dtype: stages 1 and 2 store all of them in the model's file.
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
