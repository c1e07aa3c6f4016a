#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace mpzero::model {

// Times one run of each of `candidates`, back to back. Returns the times in seconds, in the order of `candidates`, with
// infinity for a candidate that cannot run. A candidate's first timed run may be preceded by an untimed warm-up run.
using TimeRuns = std::function<std::vector<double>(std::span<const size_t> candidates)>;

struct TuningBounds {
  // Time budget of each of the two rounds, in seconds. If runs are slow, fewer candidates and repeats are timed.
  double round_seconds = 0.1;
  size_t least_candidates = 8;
  size_t finalists = 4;
  size_t least_repeats = 2, repeats = 5;
  // Relative difference below which two times count as equal.
  double tie = 0.01;
};

struct TuningResult {
  size_t fastest = 0;
  // Time of each candidate: the median of the last round, the time of the first round if the candidate did not reach
  // the last round, or infinity if it never ran.
  std::vector<double> seconds;
  size_t tried = 0;
};

// Returns the fastest of `proposed` + 1 candidates by successive halving: one quick run of each candidate, then several
// interleaved runs of the best few, so clock drift affects all candidates equally. Candidates with an index below
// `proposed` are in descending order of expected speed, which breaks ties. Candidate `proposed` is the baseline: it
// runs in both rounds and wins only if it is faster by more than TuningBounds::tie.
TuningResult find_fastest(size_t proposed, const TimeRuns& time, const TuningBounds& bounds = {});

}  // namespace mpzero::model
