#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/liveness/decision/rank_record.hpp"
#include "app/liveness/decision/silence.hpp"

namespace mpzero {

// The ranks that hold up the run, and why.
struct Verdict {
  std::vector<int> ranks;  // empty: none is known to be to blame
  std::string reason;      // one sentence without its full stop: which ranks, where, what
  std::string remedy;      // one sentence without its full stop
  // How many ranks answered the one that found it; 0 if it names none, or that one's own side. Of two verdicts on one
  // run the one with the larger number counts.
  int foundation = 0;
};

// Finds the ranks to blame: those that `silence` names, if it is given; else those that were lost first, with the first
// loss or error; else those that are silent; else those with an error; else those that have not come as far as the
// others in a collective that others wait in. `records`: by rank, not empty.
Verdict find_culprits(const std::vector<RankRecord>& records, const std::optional<Silence>& silence = std::nullopt);

// Whether a verdict counts more than the one that is written already: the first one of a run counts, unless a later one
// has more ranks that saw the same.
inline bool counts_more(const Verdict& verdict, std::optional<int> written_foundation) {
  return !written_foundation || verdict.foundation > *written_foundation;
}

// The verdict of a rank that took over, and from which most ranks are gone by then: others may have ended the run.
Verdict most_ranks_gone(const std::vector<RankRecord>& records);

// The ranks that errors name as their cause. At least one error does.
Verdict named_culprits(const std::vector<RankRecord>& records);

// Ranks are gone, have met an error or make no progress, and `unheard` have not answered since then: each of both may
// be the cause.
Verdict unclear_cause(const std::vector<RankRecord>& records, const std::vector<int>& unheard);

}  // namespace mpzero
