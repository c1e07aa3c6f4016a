#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/liveness/control_channel.hpp"
#include "app/liveness/rank_message.hpp"
#include "app/liveness/rank_roster.hpp"

namespace mpzero {

// The connections of those who report to this rank. Every rank accepts them at all times: others may turn to it before
// it has noticed itself that their monitor is gone.
class RankPeers {
 public:
  struct News {
    int rank = 0;
    std::optional<message::Any> words;  // nothing: its connection broke, without a Bye
  };

  // `roster` outlives it.
  RankPeers(Listener listener, const RankRoster& roster);

  // Readable when there is something to hear, for poll().
  std::vector<int> descriptors() const;
  // What has come since the last call, in the order in which each rank said it. Does not wait. A connection that does
  // not begin with a Hello and this run's token is closed; so is that of a rank that has said Bye, which waits for it.
  std::vector<News> hear();
  void broadcast(const message::Any& words);
  // Waits until all that was said is on its way, for `limit` at the longest.
  void finish_sending(std::chrono::milliseconds limit);

  // Ranks that have ever said who they are, and those of them that are still connected.
  int num_introduced() const { return static_cast<int>(introduced_.size()); }
  int num_connected() const;

 private:
  struct Peer {
    LineConnection connection;
    std::optional<int> rank;  // once it has said who it is
  };
  // Whether the connection stays.
  bool hear(Peer& peer, std::vector<News>& news);
  bool take(Peer& peer, const std::string& line, std::vector<News>& news);
  bool belongs(const message::Hello& hello) const;

  const RankRoster& roster_;
  Listener listener_;
  std::vector<Peer> peers_;
  std::set<int> introduced_;
};

}  // namespace mpzero
