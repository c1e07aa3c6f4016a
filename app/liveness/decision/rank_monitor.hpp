#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/decision/failure_verdict.hpp"
#include "app/liveness/decision/rank_record.hpp"
#include "app/liveness/decision/silence.hpp"
#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/rank_message.hpp"

namespace mpzero {

// How often ranks send a heartbeat: a twentieth of the time limit for silence, between one and three seconds.
LivenessClock::duration beat_period(double silent_after);

// Keeps what the ranks report about themselves and finds out when the run cannot continue. Callers pass the time;
// nothing here waits.
//
// The states of a rank. `kLeft` and `kLost` are final.
//
//   event               kAnswers   kFailed    kSilent             kLost   kLeft
//   heard               kAnswers   kFailed    kAnswers (1)        -       -
//   failed              kFailed    -          -                   -       -
//   no message in time  kSilent    -          -                   -       -
//   abandoned           kSilent    kSilent    stays, for good     -       -
//   connection broke    kLost      -          -  (2)              -       -
//   left                kLeft      kLeft      kLeft               kLeft   kLeft
//
//   (1) unless it has abandoned this rank, or another rank found out.
//   (2) A network that works again closes what it had cut: that says nothing about the process.
//
// A sign of failure is a rank that is kLost, kFailed or kSilent, or a run without progress. It counts once it has
// lasted for a while, so that other ranks' reports of the same failure have arrived: 0.4 s, 4 s for silence, 2.5 beats
// for a lack of progress. Silence that blames none, or this side, waits for 10 s more: meanwhile a side with more
// machines ends the run, and finds more.
class RankMonitor {
 public:
  using Clock = LivenessClock;
  using Time = LivenessTime;

  enum class Finding : uint8_t {
    kNothing,
    kAlarm,    // a sign of failure, returned once: the caller asks the ranks for their current status
    kProbe,    // silence has lasted for a second, returned once: the caller asks which machines can be reached
    kFailure,  // the sign has lasted long enough for the other ranks to report
    kOverdue   // a rank left with its own error, but MPI has not ended the run
  };

  // `silent_after`: seconds without a message after which a rank counts as stopped; 0: never.
  RankMonitor(const std::vector<RankIdentity>& ranks, int own, double silent_after, Time now);

  void heard(int rank, const RankStatus& status, Time now);
  void heard(int rank, const message::Beat& beat, Time now);
  void failed(int rank, const std::string& error, Time now, const std::vector<int>& culprits = {});
  // The rank's connection broke. (A rank that leaves normally reports that before.)
  void lost(int rank);
  // The rank does not respond, as another rank found out.
  void silent(int rank, Time now);
  // The rank has not heard this one for too long and reports to another one.
  void abandoned(int rank, Time now);
  // What the node of `witness` sees of the node of `rank`.
  void sighted(int witness, int rank, message::Reach reach);
  // The rank has ended normally, or with an error that it reports itself. In the latter case MPI ends the others, and
  // the first of them to end are not to blame: no failure is found from then on.
  void left(int rank, bool with_error, Time now);
  // This process has not run for that long: the others' silence during that time does not count, only that before it
  // and after it.
  void slept(Clock::duration length, Time now);
  // The others report to this rank from now on: their silence until now is ignored. What is known about ranks that are
  // gone is kept.
  void take_over(Time now);

  Finding look(Time now);
  // Whether there is a sign of failure, or an error ends the run.
  bool alarmed(Time now);
  // Valid once look() has returned kFailure.
  Verdict verdict() const;
  // As of look().
  const std::vector<RankRecord>& records() const { return records_; }
  const NodeMap& nodes() const { return nodes_; }
  // The ranks to connect to after kProbe, and those that are to do it in addition to this one.
  message::Ask probes() const;
  std::vector<int> silent_ranks() const;
  // By rank: those that have left, or are gone or silent.
  std::vector<bool> gone() const;
  // Whether all ranks but `rank` have left or are gone.
  bool all_ended_but(int rank) const;

 private:
  static constexpr double kFreshBeats = 2.5;

  struct Sign {
    double settle;    // seconds that it must last
    bool is_silence;  // and nothing else
  };
  std::optional<Sign> worst_sign(Time now);
  std::optional<Sign> sees_sign(Time now);
  // Whether the others, rather than this rank, find out what has happened.
  bool in_doubt();
  // Whether this rank took over and most ranks have ended by then: perhaps others have ended the run, unknown to it.
  bool most_lost() const;
  // Seconds for which a node counts as answering after a message of it.
  double fresh() const { return in_seconds(beat_period(silent_after_)) * kFreshBeats; }
  RankRecord& record(int rank) { return records_.at(static_cast<size_t>(rank)); }

  NodeMap nodes_;
  int own_;
  std::vector<RankRecord> records_;
  std::vector<Time> last_message_;
  double silent_after_;
  Sightings sightings_;
  std::optional<Silence> silence_;
  std::optional<Time> first_sign_;
  bool reported_alarm_ = false;
  bool probed_ = false;
  bool took_over_ = false;
  std::optional<Time> error_ends_run_;  // when that began
};

}  // namespace mpzero
