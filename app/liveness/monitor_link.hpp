#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/rank_connection.hpp"
#include "app/liveness/link/rank_message.hpp"
#include "app/liveness/link/rank_roster.hpp"
#include "app/liveness/link/rank_status.hpp"
#include "app/liveness/rank_monitor.hpp"

namespace mpzero {

// This rank's connection to the monitor, the rank that all others report to: rank 0 or, once that is gone, the next one
// that is not. Without a connection there is nothing to hear, and what is said is lost. A connection that ends before
// the monitor is identified says nothing of it (so many connect to it that it had no room, another answers under one of
// its addresses): another is made, until a new monitor has had its time.
class MonitorLink {
 public:
  enum class Gone : uint8_t {
    kLost,   // its connection broke
    kSilent  // no word from it for too long
  };
  struct News {
    bool asked = false;               // for a report, at once; also by a new connection
    std::optional<message::End> end;  // the run ends
    std::optional<Gone> gone;         // the monitor is
    // What answers in its place, in one sentence behind "rank R on HOST"; empty: nothing to tell.
    std::string warning;
  };

  // `connection`: to rank 0, none on that rank. `silent_after`: seconds without a word after which the monitor counts
  // as stopped; 0: never. `roster` outlives it.
  MonitorLink(const RankRoster& roster, std::optional<RankConnection> connection, double silent_after,
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
  // Whether there is more to hear.
  bool hear(const std::vector<std::string>& lines, News& news, LivenessTime now);
  void lose_connection(News& news, LivenessTime now);
  void connect_again(News& news, LivenessTime now);
  void count_as_gone(News& news, Gone how);
  bool is_too_late(LivenessTime now) const;

  const RankRoster& roster_;
  const double silent_after_;
  std::optional<RankConnection> connection_;
  // When to connect again to a monitor that was not identified, and what it is where that fails.
  std::optional<LivenessTime> retry_;
  Gone unreached_ = Gone::kSilent;
  size_t attempt_ = 0;   // to reach this monitor
  bool warned_ = false;  // of another in its place
  int monitor_ = 0;
  bool said_error_ = false;
  LivenessTime last_word_;
  std::optional<LivenessTime> turned_;  // to another monitor
};

}  // namespace mpzero
