#pragma once

#include <string>
#include <vector>

#include "app/liveness/rank_record.hpp"

namespace mpzero {

// The ranks that hold up the run, and why.
struct Verdict {
  std::vector<int> ranks;  // empty: all ranks wait at the same place
  std::string reason;      // one sentence without its full stop: which ranks, where, what
  std::string remedy;      // one sentence without its full stop
};

// Finds the ranks to blame: those that are gone; else those that are silent; else those with an error; else those that
// have not come as far as the others in a collective that others wait in. `records`: by rank, not empty.
Verdict find_culprits(const std::vector<RankRecord>& records);

}  // namespace mpzero
