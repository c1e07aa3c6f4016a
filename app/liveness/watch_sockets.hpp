#pragma once

#include <poll.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/liveness/decision/rank_watch.hpp"
#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/dialer.hpp"
#include "app/liveness/link/rank_connection.hpp"
#include "app/liveness/link/rank_message.hpp"
#include "app/liveness/link/rank_peers.hpp"

namespace mpzero {

// The connections of a RankWatch, over TCP: that to the monitor, those of the ranks that report to this one, and those
// that are being opened. Except for leave() and finish_sending(), nothing here waits.
class WatchSockets final : public WatchWires {
 public:
  // What has arrived, besides what RankWatch gets.
  struct News {
    bool is_urgent = false;                            // more than heartbeats
    std::vector<std::pair<int, message::Stop>> stops;  // each with its rank
    std::vector<std::string> warnings;                 // each to follow "rank R on HOST"
  };

  // `roster` must outlive it. `monitor`: the connection to rank 0, none on that rank. Throws Failure.
  WatchSockets(const RankRoster& roster, RankPeers peers, std::optional<RankConnection> monitor);

  RankPeers& peers() { return peers_; }
  // Adds what poll() is to wait for.
  void add_to(std::vector<pollfd>& wanted) const;
  // When hear() is due although poll() reports nothing.
  std::optional<LivenessTime> wakes_at() const;
  // Hands to `watch` what has arrived.
  News hear(RankWatch& watch, LivenessTime now);
  // Sends the last message of a rank that ends, to its monitor and to the ranks that it has dialed, and closes these
  // connections. Waits until the other sides have received it, but not for long.
  void leave(bool with_error);

  void to_monitor(const message::Any& message) override;
  void to_reporters(const message::Any& message) override { peers_.broadcast(message); }
  void dial(int rank, LivenessClock::duration limit) override { dialer_.dial(rank, now_, limit); }
  void hang_up(int rank) override;
  void report_to(int rank) override;
  void leave_monitor() override { link_.reset(); }
  void abandon_monitor() override;

 private:
  void hear_link(RankWatch& watch, News& news);
  void hear_reporters(RankWatch& watch, News& news);
  void hear_dialed(RankWatch& watch, News& news);

  RankPeers peers_;
  Dialer dialer_;
  std::optional<RankConnection> link_;
  std::map<int, RankConnection> dialed_;  // and answered
  // Connections to monitors that were silent. They stay open, so that a monitor that runs again reads what was sent to
  // it. A closed one would answer its next message with a reset.
  std::vector<RankConnection> abandoned_;
  LivenessTime now_ = LivenessClock::now();  // of the last hear()
};

}  // namespace mpzero
