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

// This rank's connection to the monitor, the rank that all others report to: rank 0 or, once that is gone, the next
// rank that is not. Without a connection nothing is received, and what is sent is lost. A connection that ends before
// the monitor is identified says nothing about the monitor: it may have had no room for so many connections, or another
// process may answer at one of its addresses. The rank connects again, until the time for a new monitor is over.
class MonitorLink {
 public:
  enum class Loss : uint8_t {
    kLost,   // its connection broke
    kSilent  // no message from it for too long
  };
  struct News {
    bool asked = false;               // a report is due immediately; also after a new connection
    std::optional<message::End> end;  // the run is to end
    std::optional<Loss> loss;         // the monitor is gone, in this way
    // A warning about what answers in its place, one sentence to follow "rank R on HOST". Empty: no warning.
    std::string warning;
  };

  // `connection`: to rank 0, none on that rank. `silent_after`: seconds without a message after which the monitor
  // counts as stopped; 0: never. `roster` must outlive it.
  MonitorLink(const RankRoster& roster, std::optional<RankConnection> connection, double silent_after,
              LivenessTime now);

  // For poll(), which ignores the -1 of no connection.
  int descriptor() const { return connection_ ? connection_->descriptor() : -1; }
  void send(const message::Any& message);
  void report(const RankReport& report);
  // Whether the monitor knows this rank's error.
  bool has_reported_error() const { return reported_error_; }
  // What has arrived since the last call. Does not block.
  News hear(LivenessTime now);
  // This process has not run for a while: ignore the monitor's silence during that time.
  void slept(LivenessTime now) { last_message_ = now; }

  // The monitor is gone in this way: records that in `records` and connects to the first rank, by number, that is not
  // gone. All ranks choose the same one, as long as the same ones are gone. Returns false if it is this rank.
  bool turn_to_next(RankMonitor& records, Loss how, LivenessTime now);

  // Sends the last message of a rank that ends. Waits until the monitor has received it, but not for long.
  void leave(bool with_error);

 private:
  // Whether more may arrive.
  bool hear(const std::vector<std::string>& lines, News& news, LivenessTime now);
  void lose_connection(News& news, LivenessTime now);
  void connect_again(News& news, LivenessTime now);
  void count_as_lost(News& news, Loss how);
  bool is_too_late(LivenessTime now) const;

  const RankRoster& roster_;
  const double silent_after_;
  std::optional<RankConnection> connection_;
  // When to connect again to a monitor that was not identified, and how it counts as gone if that fails.
  std::optional<LivenessTime> retry_;
  Loss unreached_ = Loss::kSilent;
  size_t attempt_ = 0;   // to reach this monitor
  bool warned_ = false;  // about another process in its place
  int monitor_ = 0;
  bool reported_error_ = false;
  LivenessTime last_message_;
  std::optional<LivenessTime> turned_;  // to another monitor
};

}  // namespace mpzero
