#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace mpzero::parallel {

// Limits, in elements, on gathering parameters ahead and keeping them afterwards; DeepSpeed's settings of the same
// names under "zero_optimization".
struct GatherLimits {
  int64_t prefetch_bucket_size = 50'000'000;      // gathered ahead, beyond the next two units
  int64_t param_persistence_threshold = 100'000;  // units up to this size stay gathered until they are updated
  int64_t max_live_parameters = 1'000'000'000;    // gathered at a time, unless the next unit alone needs more
  int64_t max_reuse_distance = 1'000'000'000;     // a unit that is needed again sooner is not released in between
};

// Decides when to gather and release sharded units (ZeRO-3), from the order in which they will be used. Pure
// bookkeeping: it moves no data. The same calls give the same results on every rank.
class GatherSchedule {
 public:
  GatherSchedule(std::vector<int64_t> unit_numel, const GatherLimits& limits);

  const GatherLimits& limits() const { return limits_; }
  // The units that use() will be called with from now on, in this order; a use may overlap with the previous one. Units
  // that are gathered already stay gathered. The first plan determines the number of buffers, see most_at_once(); a
  // later one adds the buffers that it needs in addition.
  void plan(std::vector<size_t> uses);
  // Also in the middle of a plan, which then gets the buffers for the new limits.
  void set_limits(const GatherLimits& limits);

  // The number of units of each length that may be gathered at a time: no order of calls exceeds it.
  const std::map<int64_t, int64_t>& buffers() const { return buffers_; }
  // The result of buffers() with these limits.
  std::map<int64_t, int64_t> buffers_with(const GatherLimits& limits) const;

  // What a use requires, in this order.
  struct Moves {
    std::vector<size_t> release;  // kept for later, but their buffers are needed now
    std::vector<size_t> gather;   // most urgent first
  };
  // The plan's next use. Throws Failure if the plan has another unit next.
  Moves use(size_t unit);
  // The end of a use. True: the unit is to be released.
  bool release(size_t unit);

  // The parameters are about to change. Returns the gathered units, which are to be released.
  std::vector<size_t> invalidate();
  // A unit has its new parameters. Returns the units to gather for the plan's first uses.
  std::vector<size_t> publish(size_t unit);

  // The number of units of each length that are held at a time in a run through the whole plan in which each use
  // overlaps with the previous one and nothing else limits it. A run with less overlap may decide differently: it has
  // more room under max_live_parameters, and may gather units of one length earlier.
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
  // By length: units gathered, and the most that may be once there has been a plan.
  std::map<int64_t, int64_t> held_;
  std::map<int64_t, int64_t> buffers_;
};

}  // namespace mpzero::parallel
