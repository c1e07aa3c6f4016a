#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
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
// The states of a rank. `kLeft`, `kLost` and `kEnded` are final.
//
//   event               kAnswers   kFailed    kSilent             kLost   kEnded  kLeft
//   heard               kAnswers   kFailed    kAnswers (1)        -       -       -
//   failed              kFailed    -          -                   -       -       -
//   no message in time  kSilent    -          -                   -       -       -
//   abandoned           kSilent    kSilent    stays, for good     -       -       -
//   connection broke    kLost      -          -  (2)              -       -       -
//   nothing listens     kEnded     -          -                   -       -       -
//   left                kLeft      kLeft      kLeft               kLeft   kLeft   kLeft
//
//   (1) unless it has abandoned this rank, or another rank found out.
//   (2) A network that works again closes what it had cut: that says nothing about the process.
//
// A rank that is kEnded has left normally, or ended before this rank began to monitor. It is not blamed.
//
// The signs of failure, and what becomes of them. At the beginning of each the ranks are asked for their status. A rank
// is known to live if it has answered that.
//
//   sign                          it counts once
//   kLost, or an error            it has lasted for 0.4 s, and all ranks that are not gone are known to live
//   an error with its culprits    it has lasted for 0.4 s
//   kSilent                       it has lasted for 4 s, for 3 s since the last probe, and for 4 s since a silent rank
//                                 was heard again or said that it had abandoned this one
//   a run without progress        it has lasted for 2.5 beats, and all ranks are known to live
//
// The first loss or error is the cause. Ranks that are lost within 0.4 s of it, without an answer, are to blame, and
// without any the rank that has met the error. Ranks that are lost later ended as a consequence, while answers were
// awaited. If the order is not known, none is blamed: the news of a rank is delayed where its network was cut or its
// process stopped. So the answer counts that follows what the rank has sent before, and not that a new connection to
// it works. A delay of less than one and a half heartbeats is not noticed. An error that names its culprits is believed
// in any order.
//
// A process ends, and a collective fails, when another node dies, and long before the silence of that node counts. So a
// rank that is not known to live may be the cause. If it answers, it is not. If it is silent, it is blamed: then the
// loss or the error is a consequence. If it is lost, none is blamed: a network that was cut delays the news of a
// loss. If none of this happens in time, none is blamed. "In time" is 20 s after a
// loss, because the launcher ends all ranks soon after the first one has ended (Slurm's srun, as it is used here, after
// 30 s). It is the limit for silence and 14 s more after an error or without progress, and 60 s after an error if there
// is no limit for silence.
//
// Silence that blames none, or this side, waits for 10 s more: meanwhile a side with more machines ends the run, and
// finds more. So does silence of which fewer than half of the witnesses have said what they see. After a loss neither
// lasts past the 20 s.
//
// Machines are probed after 1 s of silence. They are probed again when another one is silent, when this process has not
// run for a while, and when most witnesses have said nothing for 3 s: they may have been stopped. What was seen before
// another machine was silent, or before this process did not run, does not count.
class RankMonitor {
 public:
  using Clock = LivenessClock;
  using Time = LivenessTime;

  enum class Finding : uint8_t {
    kNothing,
    kAlarm,    // a sign of failure begins: the caller asks the ranks for their current status
    kKnock,    // some ranks do not answer: the caller connects to those of knocks()
    kProbe,    // there is silence: the caller asks which machines can be reached
    kFailure,  // the sign has lasted long enough for the other ranks to report
    kOverdue   // a rank left with its own error, but MPI has not ended the run
  };

  // `silent_after`: seconds without a message after which a rank counts as stopped; 0: never.
  RankMonitor(const std::vector<RankIdentity>& ranks, int own, double silent_after, Time now);

  void heard(int rank, const RankStatus& status, Time now);
  void heard(int rank, const message::Beat& beat, Time now);
  // The rank lives: it has answered the Ask of this number, or connected to this rank (message::Status::kFirst).
  void answered(int rank, int64_t number);
  void failed(int rank, const std::string& error, Time now, const std::vector<int>& culprits = {});
  // The rank's connection broke. (A rank that leaves normally reports that before.)
  void lost(int rank);
  // Notes which ranks were lost, or met an error, first. look() does, too.
  void order_gone(Time now);
  // Nothing listens at the rank's port any more.
  void ended(int rank);
  // The rank does not respond, as another rank found out.
  void silent(int rank, Time now);
  // The rank did not answer when this rank searched for a monitor, but its machine accepted the connection. That took
  // a few seconds only: alone it is no silence.
  void mute(int rank) { record(rank).mute = true; }
  // The rank has not heard this one for too long and reports to another one.
  void abandoned(int rank, Time now);
  // What the node of `witness` sees of `rank`.
  void sighted(int witness, int rank, message::Reach reach);
  // `witness` has turned away from `rank`, because it had not heard it for too long. That counts as unreachable, also
  // if it is reached later, when the network may work again, but not if its machine accepts connections.
  void turned(int witness, int rank);
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
  // The Ask to send after kAlarm.
  message::Ask ask() const { return {.probe = {}, .by = {}, .number = num_asks_}; }
  // The ranks to connect to after kProbe, and those that are to do it in addition to this one.
  message::Ask probes() const;
  // The ranks to connect to after kKnock, each once in an alarm.
  std::vector<int> knocks();
  std::vector<int> silent_ranks() const;
  // By rank: those that have left, or are gone or silent.
  std::vector<bool> gone() const;
  // Whether all ranks but `rank` have left or are gone.
  bool all_ended_but(int rank) const;

 private:
  static constexpr double kFreshBeats = 2.5;

  // The signs of failure at one time.
  struct Signs {
    bool lost = false;
    bool failed = false;
    bool names_culprits = false;  // an error does
    bool silent = false;
    bool stuck = false;
    bool any() const { return lost || failed || silent || stuck; }
  };
  // What a verdict is about.
  enum class Ground : uint8_t { kGone, kNamed, kSilence, kStuck, kUnclear };

  Signs signs(Time now);
  Signs see_signs(Time now);
  // Notes the beginning of a sign, or its end.
  void time_sign(bool is_there, std::optional<Time>& since, Time now);
  std::optional<Ground> ground(const Signs& signs, Time now);
  std::optional<Ground> ground_of_silence(Time now);
  bool wants_probe(Time now) const;
  void begin_probe(Time now);
  bool most_witnesses_spoke() const;
  std::set<int> silent_nodes() const;
  bool all_answered() const;
  bool waits_for(const RankRecord& record) const {
    return record.state == RankRecord::State::kAnswers && !record.answered && record.identity.rank != own_;
  }
  void note_message(int rank, Time now);
  bool is_late(Clock::duration quiet) const;
  // Since the first loss or error.
  bool has_answered(const RankRecord& record) const { return gone_ask_ && record.answered_since_gone; }
  // Whether each rank that was lost, or met an error, later than the first, or that nothing listens for any more, had
  // answered before. Otherwise it may have been the first: a network that was cut, or a process that was stopped,
  // delays the news of it. Of several that were the first no news may have been delayed. If this process did not run
  // while several were lost, the order is not known, either.
  bool is_order_known() const;
  bool wants_knock(Time now) const;
  void ask_all(Time now);
  // Whether this rank took over and most ranks have ended by then: perhaps others have ended the run, unknown to it.
  bool most_gone() const;
  Sightings all_sightings() const;
  // Seconds for which a node counts as answering after a message of it.
  double fresh() const { return in_seconds(beat_period(silent_after_)) * kFreshBeats; }
  RankRecord& record(int rank) { return records_.at(static_cast<size_t>(rank)); }

  NodeMap nodes_;
  int own_;
  std::vector<RankRecord> records_;
  std::vector<Time> last_message_;
  std::vector<std::optional<Time>> caught_up_;  // by rank: when it was heard after it had been late
  double silent_after_;
  int num_errors_ = 0;
  // When the signs began that are there.
  std::optional<Time> gone_since_;  // a loss or an error
  std::optional<Time> silent_since_;
  std::optional<Time> stuck_since_;
  bool ask_is_due_ = false;
  int64_t num_asks_ = 0;
  std::optional<int64_t> gone_ask_;  // the number of the first Ask since gone_since_
  std::optional<Time> asked_;        // for a status, in the present alarm
  std::set<int> knocked_;            // ranks
  std::optional<Time> changed_;      // when a silent rank was heard last
  std::optional<Time> probed_;
  std::set<int> probed_nodes_;
  std::set<int> witness_nodes_;           // that were asked to probe them
  Sightings sightings_;                   // since probed_
  std::set<std::pair<int, int>> turned_;  // a node, and a rank that it does not hear
  std::optional<Silence> silence_;        // as it was judged last
  std::optional<Ground> ground_;          // of the verdict
  bool took_over_ = false;
  bool slept_ = false;                  // since it last noted the order of losses
  bool is_mixed_ = false;               // several ranks were lost, or met an error, while this process did not run
  std::optional<Time> error_ends_run_;  // when that began
};

}  // namespace mpzero
