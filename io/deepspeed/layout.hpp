#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"

namespace mpzero::io {

// Where DeepSpeed's ZeRO puts each element: the parameters of a group lie flat, one behind another, in one fp32 vector
// that is split over the ranks.
//
// Stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py): the flat group is padded to a multiple of 2 · ranks and cut
// into equal partitions. Stage 3 (stage3.py): each parameter is cut into ranks pieces of ceil(numel / ranks) elements,
// the last one padded, and a rank's flat group is the row of its pieces.
class DeepSpeedLayout {
 public:
  struct Group {
    std::vector<ParameterSpec> parameters;  // in the order of the flat group
    // Padding behind each parameter (stages 1 and 2 with zero_optimization.parameter_alignment); empty: none.
    std::vector<int64_t> paddings;
  };

  // Elements [begin, begin + count) of a parameter, at `offset` of the rank's part of the group.
  struct Slice {
    size_t group = 0;
    int rank = 0;
    int64_t offset = 0;
    int64_t begin = 0;
    int64_t count = 0;
  };

  // Throws UserError where a size overflows or a name comes twice; `file` is for the message.
  DeepSpeedLayout(std::vector<Group> groups, int stage, int ranks, const std::string& file);

  int stage() const { return stage_; }
  int ranks() const { return ranks_; }
  const std::vector<Group>& groups() const { return groups_; }
  std::vector<ParameterSpec> parameters() const;

  // Elements of each rank's part of the group, padding included.
  int64_t partition_numel(size_t group) const { return partition_numels_[group]; }
  // How many of them belong to the group's vector, the rest being padding at its end. Stage 3 counts the padding of its
  // pieces as used: it lies in between.
  int64_t used_numel(size_t group, int rank) const;
  // Whether the rank's parts hold more than padding.
  bool holds_weights(int rank) const;
  // Where stages 1 and 2 put a parameter in the whole flat group.
  int64_t flat_offset(const std::string& parameter) const { return places_.at(parameter).offset; }

  // Calls visit for each stretch of elements [begin, end) of the parameter that one rank holds. False if there is no
  // such parameter.
  bool visit(const std::string& parameter, int64_t begin, int64_t end,
             const std::function<void(const Slice&)>& visit) const;

 private:
  struct Place {
    size_t group;
    int64_t offset;  // stages 1 and 2: in the flat group; stage 3: in each rank's part
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
