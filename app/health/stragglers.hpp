#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mpzero {

// The rank that took longest over its own part of a step.
struct SlowestRank {
  int rank = 0;
  double share = 0;  // of its time, that goes beyond the median of the others'
};

// A rank that is slower than the others, step after step.
struct Straggler {
  int rank = 0;
  double share = 0;   // as in SlowestRank, over these steps
  int64_t steps = 0;  // that it has been slower in, out of the last `of`
  int64_t of = 0;
  double seconds = 0;         // its own time in a step, on average
  double median_seconds = 0;  // the others'
};

// The warning that names it. `gpu`: gpu_condition() of its GPU; empty: not known.
std::string describe(const Straggler& straggler, const std::string& host, const std::string& gpu);

// Compares the ranks' own times: what they compute, load and update, without the time that they wait for each other.
// Every rank that is given the same times comes to the same result.
class Stragglers {
 public:
  // Takes one step's times in seconds, by rank; 0: not measured. Returns the slowest; nothing for a single rank, or
  // where a time is missing.
  std::optional<SlowestRank> add(std::span<const double> seconds);
  // The rank that has been steadily late, once it is and then after twice as many steps each time while it stays so.
  std::optional<Straggler> take_straggler();

 private:
  struct Step {
    std::vector<double> seconds;
  };
  std::optional<Straggler> judge() const;

  std::vector<Step> window_;
  std::optional<Straggler> found_;
  int last_rank_ = -1;
  int64_t windows_late_ = 0;  // in a row, of last_rank_
  int64_t seen_ = 0;
};

}  // namespace mpzero
