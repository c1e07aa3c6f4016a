#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace mpzero::parallel {

// Limits, in elements, for prefetching and retaining gathered parameters, named as in DeepSpeed's "zero_optimization".
struct GatherLimits {
  int64_t prefetch_bucket_size = 50'000'000;      // elements to prefetch beyond the next two units
  int64_t param_persistence_threshold = 100'000;  // units up to this size stay gathered until they are updated
  int64_t max_live_parameters = 1'000'000'000;    // limit on gathered elements, unless the next unit alone is larger
  int64_t max_reuse_distance = 1'000'000'000;     // units reused within this distance stay gathered
};

// Decides when to gather and release sharded units (ZeRO-3), based on their order of use. GatherSchedule does not move
// data, and the same calls give the same results on every rank.
class GatherSchedule {
 public:
  GatherSchedule(std::vector<int64_t> unit_numel, const GatherLimits& limits);

  const GatherLimits& limits() const { return limits_; }
  // Sets the upcoming use() calls, in order. A use may overlap with the previous use. Units that are already gathered
  // stay gathered. The first plan determines the number of buffers (see most_at_once()), and later plans only add
  // missing buffers.
  void plan(std::vector<size_t> uses);
  // Sets new limits and adds the required buffers. Can be called in the middle of a plan.
  void set_limits(const GatherLimits& limits);

  // Returns the number of buffers by length, which is the maximum number of gathered units for any order of calls.
  const std::map<int64_t, int64_t>& buffers() const { return buffers_; }
  // Returns the value that buffers() would return after set_limits(limits).
  std::map<int64_t, int64_t> buffers_with(const GatherLimits& limits) const;

  // Actions that the caller must take before it uses a unit: first release, then gather.
  struct Moves {
    std::vector<size_t> release;  // retained units whose buffers are needed now
    std::vector<size_t> gather;   // most urgent first
  };
  // Begins the next use in the plan. Throws Failure if the plan's next unit is not `unit`.
  Moves use(size_t unit);
  // Ends a use of the unit. Returns true if the caller must release the unit.
  bool release(size_t unit);

  // Marks the gathered units as outdated and returns them. The caller must release these units. Must be called before
  // the parameters change.
  std::vector<size_t> invalidate();
  // Marks a unit as up to date. Returns the units to gather for the plan's first uses. Must be called when the unit has
  // its new parameters.
  std::vector<size_t> publish(size_t unit);

  // Returns the maximum number of gathered units of each length over the whole plan, if each use overlaps with the
  // previous use and only these limits apply. With less overlap, the schedule may differ: max_live_parameters allows
  // more prefetching, and units of one length may be gathered earlier.
  std::map<int64_t, int64_t> most_at_once() const { return most_at_once(limits_); }

 private:
  struct State {
    bool gathered = false;
    bool outdated = false;  // marked by invalidate()
    int users = 0;
  };

  std::map<int64_t, int64_t> most_at_once(const GatherLimits& limits) const;
  bool has_buffer(size_t unit) const;
  // Returns the unused gathered unit of the same length whose next use is last, or std::nullopt if there is none.
  std::optional<size_t> unit_to_replace_by(size_t unit) const;
  void take(size_t unit);
  void give_back(size_t unit);
  std::vector<size_t> gather_ahead();
  bool needed_soon(size_t unit) const;
  // Returns the number of elements in the units that the next two uses need and that are not gathered yet.
  int64_t next_to_gather() const;

  std::vector<int64_t> numel_;
  GatherLimits limits_;
  std::vector<State> states_;
  std::vector<size_t> uses_;
  size_t position_ = 0;  // index of the next use
  int64_t live_ = 0;     // number of gathered elements
  // Number of gathered units by length, and number of buffers by length after the first plan.
  std::map<int64_t, int64_t> held_;
  std::map<int64_t, int64_t> buffers_;
};

}  // namespace mpzero::parallel
