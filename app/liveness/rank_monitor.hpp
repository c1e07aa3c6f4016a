#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/rank_record.hpp"

namespace mpzero {

// Keeps what the ranks say of themselves and tells when the run cannot go on. Time is given, so that nothing here
// waits.
class RankMonitor {
 public:
  using Clock = LivenessClock;
  using Time = LivenessTime;

  enum class Finding : uint8_t {
    kNothing,
    kAlarm,    // a sign of failure, told once: what the ranks do now tells more than what they did in their last word
    kFailure,  // it has stood for long enough to hear the others' side of it
    kOverdue   // a rank left with an error of its own, for which MPI was to end the run
  };

  // `silent_after`: seconds without a word after which a rank counts as stopped; 0: never.
  RankMonitor(const std::vector<RankIdentity>& ranks, double silent_after, Time now);

  void heard(int rank, const RankStatus& status, Time now);
  void failed(int rank, const std::string& error, Time now, const std::vector<int>& culprits = {});
  // Its connection broke. A rank that has left has said so before.
  void lost(int rank);
  // It does not answer, as another rank found out.
  void silent(int rank, Time now);
  // It has ended in order, or with an error that it tells itself. Of the latter MPI ends the others, of whom the first
  // to end are not to blame: nothing is found from then on.
  void left(int rank, bool with_error, Time now);
  // This process has not run for a while: the others' silence meanwhile says nothing.
  void slept(Time now);
  // The others report to this one from now on, so that their silence until now says nothing either; what is known of
  // those who are gone stays.
  void take_over(Time now);

  Finding look(Time now);
  // Whether there is a sign of failure, or an error ends the run.
  bool alarmed(Time now);
  // As of look().
  const std::vector<RankRecord>& records() const { return records_; }
  std::vector<int> silent_ranks() const;
  // The first that is neither gone nor silent. There is one, since no rank counts as that to itself.
  int first_present() const;
  // Whether all ranks but `rank` have left or are gone.
  bool all_gone_but(int rank) const;

 private:
  // How long its worst sign must stand, in seconds; nothing where all is well.
  std::optional<double> worst_sign(Time now);
  bool sees_sign(Time now);
  RankRecord& record(int rank) { return records_.at(static_cast<size_t>(rank)); }

  std::vector<RankRecord> records_;
  std::vector<Time> last_word_;
  double silent_after_;
  std::optional<Time> first_sign_;
  bool told_alarm_ = false;
  std::optional<Time> error_ends_run_;  // since then
};

}  // namespace mpzero
