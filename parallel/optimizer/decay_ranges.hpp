#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/optimizer/adamw.hpp"

namespace mpzero::parallel {

// Whether the name of a parameter, as Hugging Face has it, contains one of `patterns`: "norm" is in
// "model.layers.0.input_layernorm.weight".
bool matches_any(const std::string& name, const std::vector<std::string>& patterns);

// Which elements of one rank's share of a flat unit weight decay applies to. A parameter with and one without may lie
// in one share, and a share may begin or end within a parameter.
class DecayRanges {
 public:
  // Elements [begin, end) of the share, neighbours that are all decayed or all not.
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    bool decays = true;

    bool operator==(const Run&) const = default;
  };

  DecayRanges() = default;
  // All of `count` elements.
  explicit DecayRanges(int64_t count);
  // The share [begin, begin + count) of the unit's flat buffer, whose padding counts as decayed. Parameters whose names
  // match one of `no_decay` are not.
  DecayRanges(const UnitSpec& unit, int64_t begin, int64_t count, const std::vector<std::string>& no_decay);

  // In order and without gaps over the whole share.
  const std::vector<Run>& runs() const { return runs_; }
  // Calls visit(begin, end, update) for the parts of [begin, end) that meet the same `update`: as it is where there is
  // decay, without decay elsewhere.
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
