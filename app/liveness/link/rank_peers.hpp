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

// The connections of the ranks that report to this rank. Every rank accepts them at all times: others may connect to it
// before it has noticed that their monitor is gone.
//
// Anything that reaches the port may connect; the cost for the run is bounded. At most world_size + 16 connections wait
// to be identified, none for longer than kHandshakeLimit. When there is one too many, another one is dropped: the one
// that has waited the longest without a valid hello. A rank sends its hello as it connects, so a flood of strangers
// displaces only strangers. If all have sent a valid hello, the oldest of those that claim to be the same rank is
// dropped: all but one of them are replays, or addresses that the rank tries in vain. Only the others are reported. A
// rank that is dropped nevertheless connects again. At most 256 connections
// are accepted in 10 ms.
//
// A rank that has been identified gets a Pulse at once. Only then does it know that its connection stays.
class RankPeers {
 public:
  struct News {
    int rank = 0;
    // std::nullopt: the other side closed its connection without a Bye, and has no other one here. A rank that dials
    // this one may have two for a while. If the network broke the connection, there is no news: the rank is silent.
    std::optional<message::Any> message;
  };

  // Throws Failure.
  RankPeers(Listener listener, const RankCredentials& credentials);

  // For poll(): readable when something has arrived.
  int descriptor() const { return epoll_.get(); }
  // Until when new connections are left waiting; descriptor() does not report them meanwhile.
  std::optional<LivenessTime> rests_until() const { return rests_until_; }
  int port() const { return listener_.port(); }
  // What has arrived since the last call, for each rank in the order in which it was sent. Does not block. Closes a
  // connection whose other side is no other rank of this run, and that of a rank that has sent Bye, which waits for
  // that.
  std::vector<News> hear(LivenessTime now);
  // The same, but keeps what has arrived for hear().
  void take_in(LivenessTime now);
  void broadcast(const message::Any& message);
  // Waits until everything is sent, at most for `limit`.
  void finish_sending(std::chrono::milliseconds limit);

  // Ranks that have ever been identified, and those of them that are still connected.
  int num_introduced() const { return static_cast<int>(introduced_.size()); }
  int num_connected() const { return static_cast<int>(peers_.size()) - num_unidentified(); }
  int num_unidentified() const { return static_cast<int>(unidentified_.size()); }
  // A warning about connections that were turned away, one sentence to follow "rank R on HOST". Empty: no warning.
  std::string take_warning(LivenessTime now) { return strangers_.take_warning(now); }

 private:
  struct Peer {
    RankConnection connection;
    std::string from;
    int64_t arrival = 0;  // order of arrival
  };
  using Peers = std::map<int, Peer>;  // by descriptor
  // The identified connections of one rank.
  struct Links {
    int num_open = 0;
    bool one_broke = false;  // one was closed without a Bye
  };

  // Whether a new connection waits. Looks only at connections that have something to read.
  bool hear_ready();
  void admit(LivenessTime now);
  void take(Listener::Visit visit, LivenessTime now);
  // Drops another connection in favor of that of this descriptor.
  void make_room(int new_peer);
  void drop_overdue(LivenessTime now);
  void drop(Peers::iterator peer, Handshake::Refusal why);
  void rest_until(LivenessTime when);
  void end_rest(LivenessTime now);
  // Receives from this peer, and erases it if its connection does not stay.
  void hear(Peers::iterator peer);
  bool take(int rank, const std::string& line);
  // Reports the loss of its rank if this was the last connection, and that one or an earlier one broke.
  void erase(Peers::iterator peer);
  void flush();
  bool watch(int descriptor);
  bool watch_listener();

  RankCredentials credentials_;
  Listener listener_;
  Descriptor epoll_;
  Peers peers_;
  std::set<int> unidentified_;  // descriptors of peers_
  std::set<int> unsent_;        // those that have something to send
  std::set<int> introduced_;    // ranks
  std::map<int, Links> links_;  // by rank; of those that are connected
  std::vector<News> news_;
  Strangers strangers_;
  int64_t num_arrived_ = 0;
  std::optional<LivenessTime> rests_until_;
};

}  // namespace mpzero
