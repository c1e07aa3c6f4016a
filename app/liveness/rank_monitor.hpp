#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/rank_record.hpp"

namespace mpzero {

// Keeps what the ranks report about themselves and finds out when the run cannot continue. Callers pass the time;
// nothing here waits.
class RankMonitor {
 public:
  using Clock = LivenessClock;
  using Time = LivenessTime;

  enum class Finding : uint8_t {
    kNothing,
    kAlarm,    // a sign of failure, returned once: the caller asks the ranks for their current status
    kFailure,  // the sign has lasted long enough for the other ranks to report
    kOverdue   // a rank left with its own error, but MPI has not ended the run
  };

  // `silent_after`: seconds without a message after which a rank counts as stopped; 0: never.
  RankMonitor(const std::vector<RankIdentity>& ranks, double silent_after, Time now);

  void heard(int rank, const RankStatus& status, Time now);
  void failed(int rank, const std::string& error, Time now, const std::vector<int>& culprits = {});
  // The rank's connection broke. (A rank that leaves normally reports that before.)
  void lost(int rank);
  // The rank does not respond, as another rank found out.
  void silent(int rank, Time now);
  // The rank has ended normally, or with an error that it reports itself. In the latter case MPI ends the others, and
  // the first of them to end are not to blame: no failure is found from then on.
  void left(int rank, bool with_error, Time now);
  // This process has not run for a while: ignore the others' silence during that time.
  void slept(Time now);
  // The others report to this rank from now on: their silence until now is ignored. What is known about ranks that are
  // gone is kept.
  void take_over(Time now);

  Finding look(Time now);
  // Whether there is a sign of failure, or an error ends the run.
  bool alarmed(Time now);
  // As of look().
  const std::vector<RankRecord>& records() const { return records_; }
  std::vector<int> silent_ranks() const;
  // The first rank that is neither gone nor silent. It exists, since no rank counts itself as gone or silent.
  int first_present() const;
  // Whether all ranks but `rank` have left or are gone.
  bool all_ended_but(int rank) const;

 private:
  // How long the worst sign must last, in seconds; std::nullopt if there is none.
  std::optional<double> worst_sign(Time now);
  bool sees_sign(Time now);
  RankRecord& record(int rank) { return records_.at(static_cast<size_t>(rank)); }

  std::vector<RankRecord> records_;
  std::vector<Time> last_message_;
  double silent_after_;
  std::optional<Time> first_sign_;
  bool reported_alarm_ = false;
  std::optional<Time> error_ends_run_;  // when that began
};

}  // namespace mpzero
