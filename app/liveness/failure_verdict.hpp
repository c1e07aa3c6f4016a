#pragma once

#include <string>
#include <vector>

#include "app/liveness/rank_record.hpp"

namespace mpzero {

// Which ranks hold the run up and why.
struct Verdict {
  std::vector<int> ranks;  // none: all wait alike
  std::string reason;      // one sentence without its full stop: who, where, what
  std::string remedy;      // one sentence without its full stop
};

// Finds who is to blame: ranks that are gone; else silent ones; else those with an error; else those that have not come
// as far as the others in a collective that others wait in. `records`: by rank, not empty.
Verdict find_culprits(const std::vector<RankRecord>& records);

}  // namespace mpzero
