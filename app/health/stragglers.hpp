#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mpzero {

// The rank that took longest for its own part of a step.
struct SlowestRank {
  int rank = 0;
  double share = 0;  // of its time, the share beyond the median of the others
};

// A rank that is slower than the others, step after step.
struct Straggler {
  int rank = 0;
  double share = 0;   // as in SlowestRank, over these steps
  int64_t steps = 0;  // in which it was slower, out of the last `of`
  int64_t of = 0;
  double seconds = 0;         // its own time in a step, on average
  double median_seconds = 0;  // the others'
};

// The warning that names the rank. `gpu`: gpu_condition() of its GPU; empty: unknown.
std::string describe(const Straggler& straggler, const std::string& host, const std::string& gpu);

// Compares the ranks' own times: computing, loading and updating, without waiting for each other. Ranks that get the
// same times come to the same result.
class Stragglers {
 public:
  // Takes one step's times in seconds, by rank; 0: not measured. Returns the slowest rank; std::nullopt for a single
  // rank, or if a time is missing.
  std::optional<SlowestRank> add(std::span<const double> seconds);
  // Returns a rank that is consistently slow: first when it is detected, and then after twice as many steps each time
  // while it stays slow.
  std::optional<Straggler> take_straggler();

 private:
  struct Step {
    std::vector<double> seconds;
  };
  std::optional<Straggler> judge() const;

  std::vector<Step> window_;
  std::optional<Straggler> found_;
  int last_rank_ = -1;
  int64_t windows_late_ = 0;  // consecutive ones of last_rank_
  int64_t seen_ = 0;
};

}  // namespace mpzero
