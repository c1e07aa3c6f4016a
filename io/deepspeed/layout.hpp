#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"

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

}  // namespace mpzero::io
