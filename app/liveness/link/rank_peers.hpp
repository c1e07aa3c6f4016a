#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/control_channel.hpp"
#include "app/liveness/link/listener.hpp"
#include "app/liveness/link/rank_connection.hpp"
#include "app/liveness/link/rank_message.hpp"
#include "app/liveness/link/strangers.hpp"

namespace mpzero {

// The connections of those who report to this rank. Every rank accepts them at all times: others may turn to it before
// it has noticed itself that their monitor is gone.
//
// Whoever reaches the port may connect; what that costs the run is bounded. No more than world_size + 16 connections
// wait to be identified, and none for longer than kHandshakeLimit. Where one too many comes, another
// makes room: the one that has waited the longest without a right hello, since a rank's comes with its connection, so
// that a flood of others pushes out each other; where all have said one, the oldest of those that claim to be the same
// rank, of which all but one are replays. A rank that is pushed out all the same connects again. And no more than 256
// connections are accepted in 10 ms.
class RankPeers {
 public:
  struct News {
    int rank = 0;
    std::optional<message::Any> words;  // nothing: its connection broke, without a Bye
  };

  // Throws Failure.
  RankPeers(Listener listener, const RankCredentials& credentials);

  // Readable when there is something to hear, for poll().
  int descriptor() const { return epoll_.get(); }
  // Until when new connections are left waiting, which descriptor() does not show meanwhile.
  std::optional<LivenessTime> rests_until() const { return rests_until_; }
  int port() const { return listener_.port(); }
  // What has come since the last call, in the order in which each rank said it. Does not wait. A connection whose other
  // side is no other rank of this run is closed; so is that of a rank that has said Bye, which waits for it.
  std::vector<News> hear(LivenessTime now);
  // The same, but what has come is left to hear().
  void take_in(LivenessTime now);
  void broadcast(const message::Any& words);
  // Waits until all that was said is on its way, for `limit` at the longest.
  void finish_sending(std::chrono::milliseconds limit);

  // Ranks that have ever been identified, and those of them that are still connected.
  int num_introduced() const { return static_cast<int>(introduced_.size()); }
  int num_connected() const { return static_cast<int>(peers_.size()) - num_unidentified(); }
  int num_unidentified() const;
  // Of those who were turned away, in one sentence behind "rank R on HOST"; empty: nothing to tell.
  std::string take_warning(LivenessTime now) { return strangers_.take_warning(now); }

 private:
  struct Peer {
    RankConnection connection;
    std::string from;
    int64_t arrival = 0;  // their order
  };
  using Peers = std::map<int, Peer>;  // by descriptor

  // Whether a new connection waits.
  bool hear_ready();
  void admit(LivenessTime now);
  void take(Listener::Visit visit, LivenessTime now);
  // For the connection of this descriptor, which stays.
  void make_room(int newcomer);
  void drop_overdue(LivenessTime now);
  void drop(Peers::iterator peer, Handshake::Refusal why);
  void rest_until(LivenessTime when);
  void end_rest(LivenessTime now);
  // Hears it; it is no longer among them if its connection does not stay.
  void hear(Peers::iterator peer);
  bool take(int rank, const std::string& line);
  bool watch(int descriptor);
  bool watch_listener();

  RankCredentials credentials_;
  Listener listener_;
  Descriptor epoll_;
  Peers peers_;
  std::set<int> introduced_;
  std::vector<News> news_;
  Strangers strangers_;
  int64_t num_arrived_ = 0;
  std::optional<LivenessTime> rests_until_;
};

}  // namespace mpzero
