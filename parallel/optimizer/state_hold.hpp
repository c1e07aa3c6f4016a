#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "parallel/optimizer/optimizer_shard.hpp"

namespace mpzero::parallel {

// The held states of an optimizer, and their mutex. Shared by the optimizer and the holds.
struct HoldRegistry {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, int64_t> holds;  // number of holds, by the address of the master weights

  // Requires the mutex to be locked.
  bool is_held(const OptimizerStates& states) const { return holds.contains(states.master.const_data_ptr()); }
};

// Keeps the states of one unit unchanged: during its lifetime nothing writes to them. Any thread may release it. It may
// outlive the optimizer that created it.
class StateHold {
 public:
  StateHold() = default;
  // Requires the registry's mutex to be locked.
  StateHold(std::shared_ptr<HoldRegistry> registry, OptimizerStates states);
  StateHold(StateHold&& other) noexcept = default;
  StateHold& operator=(StateHold&& other) noexcept;
  ~StateHold() { release(); }

  // Read-only. Empty after release().
  const OptimizerStates& states() const { return states_; }
  void release();

 private:
  std::shared_ptr<HoldRegistry> registry_;  // null: holds nothing
  OptimizerStates states_;
};

// States that no unit currently uses. An update that must not change its unit's states writes to spare states. Not
// thread-safe.
class SpareStates {
 public:
  void add(OptimizerStates states);
  // States of `length` elements that are not held; empty if there are none. Requires the mutex of `held` to be locked.
  std::optional<OptimizerStates> take(int64_t length, const HoldRegistry& held);
  // Whether take() would return states.
  bool has(int64_t length, const HoldRegistry& held) const;
  // Drops spare states of `length` elements beyond `most`. Returns how many are left.
  int64_t shrink(int64_t length, int64_t most);

 private:
  std::map<int64_t, std::vector<OptimizerStates>> by_length_;
};

}  // namespace mpzero::parallel
