#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "parallel/optimizer/optimizer_shard.hpp"
#include "parallel/optimizer/state_hold.hpp"

namespace mpzero::parallel {

// States that no unit uses at the moment: an update that must leave its unit's states as they are writes into such. Not
// for several threads at once.
class SpareStates {
 public:
  void add(OptimizerStates states);
  // One of `length` elements that nobody holds; nothing where there is none. The mutex of `held` is locked.
  std::optional<OptimizerStates> take(int64_t length, const HoldRegistry& held);
  // Whether take() would return one.
  bool has(int64_t length, const HoldRegistry& held) const;
  // Drops those of `length` elements beyond `most`. Returns how many are left.
  int64_t shrink(int64_t length, int64_t most);

 private:
  std::map<int64_t, std::vector<OptimizerStates>> by_length_;
};

}  // namespace mpzero::parallel
