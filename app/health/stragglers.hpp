#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mpzero {

// The rank with the longest time in a step, excluding waits for other ranks.
struct SlowestRank {
  int rank = 0;
  double share = 0;  // (time - median of the other ranks) / time
};

// A rank that is consistently slower than the other ranks.
struct Straggler {
  int rank = 0;
  double share = 0;           // SlowestRank::share over the last `of` steps
  int64_t steps = 0;          // steps in which this rank was slow
  int64_t of = 0;             // number of steps compared
  double seconds = 0;         // mean time per step
  double median_seconds = 0;  // median of the other ranks
};

// Returns a warning about the straggler. `gpu`: gpu_condition() of the straggler's GPU; empty if unknown.
std::string describe(const Straggler& straggler, const std::string& host, const std::string& gpu);

// Detects stragglers by comparing the ranks' times for computation, data loading and updates, which exclude waits for
// other ranks. The detection is deterministic: ranks that add the same times get the same results.
class Stragglers {
 public:
  // Adds the times of one step. `seconds`: one value per rank; 0 if not measured. Returns the slowest rank;
  // std::nullopt for a single rank, or if any time was not measured.
  std::optional<SlowestRank> add(std::span<const double> seconds);
  // Returns a straggler when it is first detected, and again at doubling intervals while the rank remains slow.
  std::optional<Straggler> take_straggler();

 private:
  struct Step {
    std::vector<double> seconds;
  };
  std::optional<Straggler> judge() const;

  std::vector<Step> window_;
  std::optional<Straggler> found_;
  int last_rank_ = -1;
  int64_t windows_late_ = 0;  // consecutive windows with the straggler last_rank_
  int64_t seen_ = 0;
};

}  // namespace mpzero
