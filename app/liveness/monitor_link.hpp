#pragma once

#include <cstdint>
#include <optional>

#include "app/liveness/clock.hpp"
#include "app/liveness/control_channel.hpp"
#include "app/liveness/rank_message.hpp"
#include "app/liveness/rank_monitor.hpp"
#include "app/liveness/rank_roster.hpp"
#include "app/liveness/rank_status.hpp"

namespace mpzero {

// This rank's connection to the monitor, the rank that all others report to: rank 0 or, once that is gone, the next one
// that is not. Without a connection there is nothing to hear, and what is said is lost.
class MonitorLink {
 public:
  enum class Gone : uint8_t {
    kLost,   // its connection broke
    kSilent  // no word from it for too long
  };
  struct News {
    bool asked = false;               // for a report, at once
    std::optional<message::End> end;  // the run ends
    std::optional<Gone> gone;         // the monitor is
  };

  // `connection`: to rank 0, none on that rank. `silent_after`: seconds without a word after which the monitor counts
  // as stopped; 0: never. `roster` outlives it.
  MonitorLink(const RankRoster& roster, std::optional<LineConnection> connection, double silent_after,
              LivenessTime now);

  // For poll(), which passes over the -1 of no connection.
  int descriptor() const { return connection_ ? connection_->descriptor() : -1; }
  void say(const message::Any& words);
  void report(const RankReport& report);
  // Whether the monitor knows this rank's error.
  bool has_said_error() const { return said_error_; }
  // What has come since the last call. Does not wait.
  News hear(LivenessTime now);
  // This process has not run for a while: the monitor's silence meanwhile says nothing.
  void slept(LivenessTime now) { last_word_ = now; }

  // The monitor is gone in this way: notes so in `records` and turns to the first rank, by number, that is not. Each
  // rank comes to the same one, as long as the same ones are gone. False where it is this rank.
  bool turn_to_next(RankMonitor& records, Gone how, LivenessTime now);

  // The last word of a rank that ends in order: waits until the monitor has heard it, but not for long.
  void leave(bool with_error);

 private:
  const RankRoster& roster_;
  const double silent_after_;
  std::optional<LineConnection> connection_;
  int monitor_ = 0;
  bool said_error_ = false;
  LivenessTime last_word_;
  std::optional<LivenessTime> turned_;  // to another monitor
};

}  // namespace mpzero
