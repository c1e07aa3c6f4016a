#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/optimizer/adamw.hpp"

namespace mpzero::parallel {

// Returns true if the Hugging Face name of a parameter contains one of `patterns`: "norm" matches
// "model.layers.0.input_layernorm.weight".
bool matches_any(const std::string& name, const std::vector<std::string>& patterns);

// Ranges of a rank's shard of a flat unit that are subject to weight decay. A shard may contain parameters with and
// without decay, and may begin or end within a parameter.
class DecayRanges {
 public:
  // Consecutive elements [begin, end) of the shard, either all with decay or all without.
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    bool decays = true;

    bool operator==(const Run&) const = default;
  };

  DecayRanges() = default;
  // Creates ranges in which weight decay applies to all `count` elements.
  explicit DecayRanges(int64_t count);
  // Creates the ranges of the shard [begin, begin + count) of the unit's flat buffer. Weight decay applies to padding,
  // but not to parameters whose names match one of `no_decay`.
  DecayRanges(const UnitSpec& unit, int64_t begin, int64_t count, const std::vector<std::string>& no_decay);

  // Returns the runs, which cover the full shard in order and without gaps.
  const std::vector<Run>& runs() const { return runs_; }
  // Calls visit(begin, end, update) for each subrange of [begin, end) with uniform decay. For subranges without decay,
  // visit() receives a copy of `update` without decay.
  template <typename Visit>
  void visit(int64_t begin, int64_t end, const AdamWUpdate& update, Visit&& visit) const {
    auto run = std::partition_point(runs_.begin(), runs_.end(), [&](const Run& r) { return r.end <= begin; });
    for (; run != runs_.end() && run->begin < end; ++run) {
      AdamWUpdate own = update;
      if (!run->decays) own.decay = 1.0F;
      visit(std::max(begin, run->begin), std::min(end, run->end), own);
    }
  }

 private:
  void add(int64_t end, bool decays);

  std::vector<Run> runs_;
};

}  // namespace mpzero::parallel
