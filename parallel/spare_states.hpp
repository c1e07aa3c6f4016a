#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "parallel/optimizer_shard.hpp"

namespace mpzero::parallel {

// Whether somebody has these states besides their owner; a part of a tensor counts.
bool is_held(const OptimizerStates& states);

// States that no unit uses at the moment: an update that must leave its unit's states as they are writes into such. Not
// for several threads at once.
class SpareStates {
 public:
  void add(OptimizerStates states);
  // One of `length` elements that nobody holds; nothing where there is none.
  std::optional<OptimizerStates> take(int64_t length);
  // Drops those of `length` elements beyond `most`. Returns how many are left.
  int64_t shrink(int64_t length, int64_t most);

 private:
  std::map<int64_t, std::vector<OptimizerStates>> by_length_;
};

}  // namespace mpzero::parallel
