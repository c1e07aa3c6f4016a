#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace mpzero::model {

// Times one run of each of the candidates in a list, one right after the other. Seconds, in the order of the list;
// infinity for a candidate that cannot run. An untimed run may precede the first run of a candidate.
using TimeRuns = std::function<std::vector<double>(std::span<const size_t> candidates)>;

struct TuningBounds {
  // Time for runs in each of the two rounds. If a run takes long, there are fewer candidates and fewer repeats.
  double round_seconds = 0.1;
  size_t least_candidates = 8;
  size_t finalists = 4;
  size_t least_repeats = 2, repeats = 5;
  // Times that differ by less than this ratio count as equal.
  double tie = 0.01;
};

struct TuningResult {
  size_t fastest = 0;
  // By candidate: the median of the last round, otherwise the time of the first; infinity if it never ran.
  std::vector<double> seconds;
  size_t tried = 0;
};

// The fastest of `proposed` + 1 candidates by successive halving: a quick run of each, then several of the best few,
// taking turns so that clock drift affects all alike. The candidates below `proposed` come in the order of their
// expected speed, which decides ties. The one numbered `proposed` is the baseline: it takes part in both rounds and
// wins only by more than a tie.
TuningResult find_fastest(size_t proposed, const TimeRuns& time, const TuningBounds& bounds = {});

}  // namespace mpzero::model
