#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "app/failure_report.hpp"
#include "app/rank_status.hpp"

namespace mpzero {

// Keeps what the ranks say of themselves and tells when the run cannot go on. Time is given, so that nothing here
// waits.
class RankMonitor {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // `silent_after`: seconds without a word after which a rank counts as stopped; 0: never.
  RankMonitor(const std::vector<RankIdentity>& ranks, double silent_after, Time now);

  void heard(int rank, const RankStatus& status, Time now);
  void failed(int rank, const std::string& error, Time now);
  // Its connection broke. A rank that has left has said so before.
  void lost(int rank);
  // It does not answer, as another rank found out.
  void silent(int rank, Time now);
  void left(int rank);
  // This process has not run for a while: the others' silence meanwhile says nothing.
  void slept(Time now);

  // Whether a sign of failure has stood for long enough to hear the others' side of it.
  bool concluded(Time now);
  // Whether there is such a sign at all.
  bool alarmed(Time now);
  // As of concluded().
  const std::vector<RankRecord>& records() const { return records_; }
  // Whether all ranks but `rank` have left or are gone.
  bool all_gone_but(int rank) const;

 private:
  // How long its worst sign must stand, in seconds; nothing where all is well.
  std::optional<double> worst_sign(Time now);
  RankRecord& record(int rank) { return records_.at(static_cast<size_t>(rank)); }

  std::vector<RankRecord> records_;
  std::vector<Time> last_word_;
  double silent_after_;
  std::optional<Time> first_sign_;
};

}  // namespace mpzero
