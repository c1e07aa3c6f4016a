#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace mpzero::parallel {

// Limits, in elements, on prefetching parameters and keeping them gathered; named as in DeepSpeed's
// "zero_optimization".
struct GatherLimits {
  int64_t prefetch_bucket_size = 50'000'000;      // prefetched beyond the next two units
  int64_t param_persistence_threshold = 100'000;  // units up to this size stay gathered until they are updated
  int64_t max_live_parameters = 1'000'000'000;    // gathered at a time, unless the next unit alone needs more
  int64_t max_reuse_distance = 1'000'000'000;     // units reused within this distance stay gathered
};

// Decides when to gather and release sharded units (ZeRO-3), from their order of use. Pure bookkeeping: it moves no
// data. The same calls give the same results on every rank.
class GatherSchedule {
 public:
  GatherSchedule(std::vector<int64_t> unit_numel, const GatherLimits& limits);

  const GatherLimits& limits() const { return limits_; }
  // Sets the upcoming use() calls, in order; a use may overlap with the previous one. Gathered units stay gathered. The
  // first plan determines the number of buffers, see most_at_once(); a later one only adds missing buffers.
  void plan(std::vector<size_t> uses);
  // Allowed in the middle of a plan, to which it adds the buffers for the new limits.
  void set_limits(const GatherLimits& limits);

  // The maximum number of gathered units of each length: no order of calls exceeds it.
  const std::map<int64_t, int64_t>& buffers() const { return buffers_; }
  // buffers() after set_limits() with these limits.
  std::map<int64_t, int64_t> buffers_with(const GatherLimits& limits) const;

  // Actions that a use requires, in this order.
  struct Moves {
    std::vector<size_t> release;  // kept for later, but their buffers are needed now
    std::vector<size_t> gather;   // most urgent first
  };
  // Begins the plan's next use. Throws Failure if the plan's next unit is another one.
  Moves use(size_t unit);
  // Ends a use. Returns whether to release the unit.
  bool release(size_t unit);

  // Call before the parameters change. Returns the gathered units, which must be released.
  std::vector<size_t> invalidate();
  // Call when a unit has its new parameters. Returns the units to gather for the plan's first uses.
  std::vector<size_t> publish(size_t unit);

  // The maximum number of gathered units of each length in a run through the whole plan in which each use overlaps with
  // the previous one, without other limits. A run with less overlap may decide differently: max_live_parameters leaves
  // more space, and units of one length may be gathered earlier.
  std::map<int64_t, int64_t> most_at_once() const { return most_at_once(limits_); }

 private:
  struct State {
    bool gathered = false;
    bool outdated = false;  // since invalidate()
    int users = 0;
  };

  std::map<int64_t, int64_t> most_at_once(const GatherLimits& limits) const;
  bool has_buffer(size_t unit) const;
  // The gathered unit of the same length, not in use, that is needed last; std::nullopt if there is none.
  std::optional<size_t> unit_to_replace_by(size_t unit) const;
  void take(size_t unit);
  void give_back(size_t unit);
  std::vector<size_t> gather_ahead();
  bool needed_soon(size_t unit) const;
  // Elements of the next two uses that are still to be gathered.
  int64_t next_to_gather() const;

  std::vector<int64_t> numel_;
  GatherLimits limits_;
  std::vector<State> states_;
  std::vector<size_t> uses_;
  size_t position_ = 0;  // of the next use
  int64_t live_ = 0;     // elements gathered
  // By length: the number of gathered units, and its maximum once there is a plan.
  std::map<int64_t, int64_t> held_;
  std::map<int64_t, int64_t> buffers_;
};

}  // namespace mpzero::parallel
