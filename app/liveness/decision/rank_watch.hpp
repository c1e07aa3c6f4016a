#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/decision/rank_monitor.hpp"
#include "app/liveness/decision/succession.hpp"
#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/rank_message.hpp"
#include "app/liveness/link/rank_status.hpp"

namespace mpzero {

// What RankWatch asks of its connections. None of these waits; none calls back.
class WatchWires {
 public:
  virtual ~WatchWires() = default;
  // Nothing is sent without a connection.
  virtual void to_monitor(const message::Any& message) = 0;
  virtual void to_reporters(const message::Any& message) = 0;
  // Connects to a rank; RankWatch::dialed() gets the outcome, within `limit`.
  virtual void dial(int rank, LivenessClock::duration limit) = 0;
  // Closes the connection to a rank that was dialed, or stops dialing it.
  virtual void hang_up(int rank) = 0;
  // The connection to this rank, which was dialed and answered, is that to the monitor from now on.
  virtual void report_to(int rank) = 0;
  // Closes the connection to the monitor.
  virtual void leave_monitor() = 0;
  // The same for a monitor that is silent: what was sent to it arrives if it, or its network, works again.
  virtual void abandon_monitor() = 0;
};

// What one rank does about its own heartbeats, the monitor, and the ranks that report to it: events with their times
// in, messages and the end of the run out. Nothing here reads a clock, opens a socket or waits.
//
// Rank 0 monitors at first. All others report to it. Their states and what happens in them:
//
//   state      event                                        next state, and what this rank does
//   kReports   the monitor says End                         ended() has it
//              the monitor says Bye                         kFree
//              the connection to it breaks                  kSeeks; the monitor is lost
//              silence of it, for too long                  kSeeks; the monitor is silent, and gets Abandon
//              a new monitor has not ended the run in time  kSeeks; the same
//              Ask                                          a Status; dials the ranks that it is to probe
//   kSeeks     a candidate says End                         ended() has it
//              a candidate is chosen (Succession)           kReports; says Turned, if a monitor was silent, and its
//   Status
//              this rank is chosen                          kMonitors
//   kMonitors  a sign of failure (RankMonitor)              Ask to all
//              some do not answer for a second              dials them
//              silence for a second                         Ask, with ranks to probe, to all; dials them
//              the failure counts                           ended() has the verdict
//   kFree      -                                            the run is over; nothing follows
//
// A rank that takes over does not know what the others have decided meanwhile. A candidate that refuses has ended: it
// may have left normally, or its run may have been ended.
//
// A rank that did not run while it dialed another one, or that could not dial, knows nothing about that one. It dials a
// candidate again, until the fifth such outcome, which counts, and says nothing about a rank that it was to probe.
// Ranks may report to a rank that does not monitor, because they noticed first that the monitor is gone. What they say
// is kept.
class RankWatch {
 public:
  using Time = LivenessTime;
  struct Ending {
    message::End end;                // for the ranks that report to this one
    std::optional<Verdict> verdict;  // what this rank found; none: another rank did, or MPI ends the run
  };

  // `wires` must outlive it.
  RankWatch(const std::vector<RankIdentity>& ranks, int own, double silent_after, WatchWires& wires, Time now);

  bool monitors() const { return state_ == State::kMonitors; }

  // When the next heartbeat is due.
  Time next_beat() const { return next_beat_; }
  // This rank's own heartbeat: to the monitor, or to itself and the others.
  void beat(const RankReport& own, Time now);
  // Whether the monitor knows this rank's error.
  bool has_reported_error() const { return reported_error_; }

  void hear_reporter(int rank, const message::Any& message, Time now);
  void lose_reporter(int rank) { monitor_.lost(rank); }
  void hear_monitor(const message::Any& message, Time now);
  // `by_network`: it was not closed, but the network has failed.
  void lose_monitor(bool by_network, Time now);
  // The outcome of WatchWires::dial(). std::nullopt: this process could not try it, for example for want of
  // descriptors.
  void dialed(int rank, std::optional<message::Reach> reach, Time now);
  // A candidate says something before it is chosen.
  void hear_dialed(const message::Any& message);
  // The connection to a rank that was dialed, and answered, broke. `by_network` as in lose_monitor().
  void lose_dialed(int rank, bool by_network, Time now);
  // This process has not run for that long.
  void slept(LivenessClock::duration length, Time now);

  // Acts on what has changed, and on the time.
  void look(Time now);
  // Why and how this rank ends; std::nullopt: it does not.
  const std::optional<Ending>& ended() const { return ended_; }
  bool alarmed(Time now) { return monitor_.alarmed(now); }
  const RankMonitor& records() const { return monitor_; }

 private:
  enum class State : uint8_t { kReports, kSeeks, kMonitors, kFree };
  struct Dial {
    bool for_probe = false;
    bool for_search = false;
    bool answered = false;
    bool disturbed = false;  // this process did not run for a while
    int attempts = 0;        // that could not be made
    int num_disturbed = 0;   // outcomes that did not count, because this process did not run for a while
  };

  void probe(const std::vector<int>& ranks);
  void dial(int rank, bool for_probe, LivenessClock::duration limit);
  void turn(bool silent, Time now);
  void search(Time now);
  void report_to(int rank, Time now);
  void take_over(Time now);
  void record_search(Time now);
  void report_probed(int rank, message::Reach reach);
  bool dials_again(int rank, Dial& dial, std::optional<message::Reach> reach);
  void look_for_failures(Time now);

  const int own_;
  const double silent_after_;
  WatchWires& wires_;
  RankMonitor monitor_;
  Succession succession_;
  State state_;
  int monitor_rank_ = 0;
  std::vector<int> silent_monitors_;  // that this rank reported to before
  std::map<int, Dial> dials_;
  Time last_message_;           // of the monitor
  std::optional<Time> turned_;  // to another monitor
  Time next_beat_;
  int64_t beats_ = 0;
  int64_t asked_ = 0;  // the number of the Ask to answer, or message::Status::kFirst; 0: none
  bool reported_error_ = false;
  std::optional<Ending> ended_;
};

}  // namespace mpzero
