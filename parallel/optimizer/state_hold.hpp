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

// A mutex-protected registry of the states that StateHolds keep unchanged. Shared by an optimizer and its holds.
struct HoldRegistry {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, int64_t> holds;  // number of holds, by the address of the master weights

  // Requires the mutex to be locked.
  bool is_held(const OptimizerStates& states) const { return holds.contains(states.master.const_data_ptr()); }
};

// Keeps the states of one unit unchanged during the hold's lifetime. Any thread may release a hold. A hold may outlive
// the optimizer that created it.
class StateHold {
 public:
  StateHold() = default;
  // Requires the registry's mutex to be locked.
  StateHold(std::shared_ptr<HoldRegistry> registry, OptimizerStates states);
  StateHold(StateHold&& other) noexcept = default;
  StateHold& operator=(StateHold&& other) noexcept;
  ~StateHold() { release(); }

  // Returns the states, which must not be modified. Empty after release().
  const OptimizerStates& states() const { return states_; }
  void release();

 private:
  std::shared_ptr<HoldRegistry> registry_;  // null if empty
  OptimizerStates states_;
};

// Pool of optimizer states that no unit uses. An update that must not change its unit's states writes to spare states.
// Not thread-safe.
class SpareStates {
 public:
  void add(OptimizerStates states);
  // Removes and returns states of `length` elements that are not held, or std::nullopt. Requires the mutex of `held` to
  // be locked.
  std::optional<OptimizerStates> take(int64_t length, const HoldRegistry& held);
  // Returns true if take() would return states.
  bool has(int64_t length, const HoldRegistry& held) const;
  // Drops spare states of `length` elements until at most `most` remain. Returns the number of remaining spare states.
  int64_t shrink(int64_t length, int64_t most);

 private:
  std::map<int64_t, std::vector<OptimizerStates>> by_length_;
};

}  // namespace mpzero::parallel
