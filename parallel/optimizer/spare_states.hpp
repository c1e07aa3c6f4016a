#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "parallel/optimizer/optimizer_shard.hpp"
#include "parallel/optimizer/state_hold.hpp"

namespace mpzero::parallel {

// States that no unit currently uses. An update that must not change its unit's states writes into spare states. Not
// thread-safe.
class SpareStates {
 public:
  void add(OptimizerStates states);
  // States of `length` elements that nothing holds; empty if there are none. The mutex of `held` is locked.
  std::optional<OptimizerStates> take(int64_t length, const HoldRegistry& held);
  // Whether take() would return states.
  bool has(int64_t length, const HoldRegistry& held) const;
  // Drops those of `length` elements beyond `most`. Returns how many are left.
  int64_t shrink(int64_t length, int64_t most);

 private:
  std::map<int64_t, std::vector<OptimizerStates>> by_length_;
};

}  // namespace mpzero::parallel
