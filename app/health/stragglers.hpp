#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mpzero {

// The rank with the longest own time in a step.
struct SlowestRank {
  int rank = 0;
  double share = 0;  // share of its time above the others' median
};

// A rank that is consistently slower than the others.
struct Straggler {
  int rank = 0;
  double share = 0;   // as in SlowestRank, over these steps
  int64_t steps = 0;  // steps in which it was slower, out of the last `of`
  int64_t of = 0;
  double seconds = 0;         // mean own time per step
  double median_seconds = 0;  // of the others
};

// The warning that names the rank. `gpu`: gpu_condition() of its GPU; empty: unknown.
std::string describe(const Straggler& straggler, const std::string& host, const std::string& gpu);

// Compares the ranks' own times: computation, data loading and updates, excluding waits for other ranks. The result is
// the same on all ranks that add the same times.
class Stragglers {
 public:
  // Adds one step's times in seconds, by rank; 0: not measured. Returns the slowest rank; std::nullopt for a single
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
  int64_t windows_late_ = 0;  // consecutive windows with last_rank_
  int64_t seen_ = 0;
};

}  // namespace mpzero
