#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/control_channel.hpp"
#include "app/liveness/link/handshake.hpp"
#include "app/liveness/link/rank_connection.hpp"
#include "app/liveness/link/rank_identity.hpp"
#include "app/liveness/link/rank_message.hpp"

namespace mpzero {

// The ranks that take part in a run, as this rank sees them.
struct RankRoster {
  int own = 0;                      // this rank
  std::vector<RankIdentity> ranks;  // all, by rank
  int64_t started = 0;              // when the run did, by rank 0's clock: seconds since 1970
  HashBytes secret{};               // distinguishes ranks of this run from others that connect

  int size() const { return static_cast<int>(ranks.size()); }
  const RankIdentity& identity(int rank) const { return ranks.at(static_cast<size_t>(rank)); }
  RankCredentials credentials() const { return {.own = own, .world_size = size(), .secret = secret}; }
};

// Connects this rank to others, to several ranks at once, each within one time limit. Nothing here waits.
//
// A rank's addresses are tried in their order (RFC 8305). The next one follows when one fails, or after a quarter of a
// second (less, if that is needed to try all of them in the first half of the limit), or one second after an address
// has accepted: a rank that is busy has one connection to answer, not one for each of its addresses.
//
//   state of an address   event                                     next state
//   is next in line       its time has come                         connects
//   connects              connected                                 shakes hands (hello is sent)
//                         refused                                   refused
//                         the network reports an error              waits
//   shakes hands          it has proved to be the rank              identified; the other addresses are in line again
//                         closed by the other side, or no room      waits: it may have had no room for so many
//                         another process, or one without secret    refused, with a warning
//   identified            the other side says so, too               the rank answers
//                         closed by the other side                  waits
//   waits                 0.05 to 0.15 s have passed                connects
//
// A rank whose addresses are all refused is kRefused, or kMute if another process answers at one of them. At the limit
// it is kMute if one of its addresses accepted a connection, else kUnreachable.
//
// This rank has identified the other one first. The other one says so with a Pulse (RankPeers): until then it may close
// the connection, for want of room or time. Only one address gets that far at a time.
class Dialer {
 public:
  struct Answer {
    int rank = 0;
    message::Reach reach = message::Reach::kUnreachable;
    bool tried = true;  // false: this process had no socket for any address, so that `reach` says nothing
    std::optional<RankConnection> connection;  // kAnswers
    // Why nothing could be reached: completes "because".
    std::string why;
    // About another process that answers in the rank's place, one sentence to follow "rank R on HOST". Empty: none.
    std::string warning;
  };

  // `roster` must outlive it. Throws Failure.
  explicit Dialer(const RankRoster& roster);

  // For poll(): readable when something has happened.
  int descriptor() const { return epoll_.get(); }
  // When hear() is due although nothing has happened.
  std::optional<LivenessTime> wakes_at() const;
  void dial(int rank, LivenessTime now, LivenessClock::duration limit);
  void hang_up(int rank);
  // Stops dialing all ranks, and returns the connections to those that may have identified this rank.
  std::vector<RankConnection> take_identified();
  // The ranks whose outcome is known since the last call.
  std::vector<Answer> hear(LivenessTime now);

 private:
  // kShakesHands is also that of an address that is identified.
  enum class State : uint8_t { kInLine, kConnects, kShakesHands, kWaits, kRefused };
  struct Attempt {
    std::string address;
    State state = State::kInLine;
    Descriptor socket;                         // while it connects
    std::optional<RankConnection> connection;  // while it shakes hands
    LivenessTime again;                        // while it waits
    bool tried = false;                        // there was a socket for it
    bool answers = false;                      // while it shakes hands: both sides are identified
  };
  static bool is_identified(const Attempt& attempt) {
    return attempt.state == State::kShakesHands && attempt.connection->is_identified();
  }
  struct Call {
    std::vector<Attempt> attempts;
    LivenessTime until;
    LivenessTime next;              // when the next address in line is due
    LivenessClock::duration pause;  // between two addresses
    bool accepted = false;          // by one of its addresses, once
    std::string why;
    std::string warning;
  };

  // Connects to the addresses that are due.
  void connect_next(int rank, Call& call, LivenessTime now);
  void connect(int rank, Call& call, Attempt& attempt, LivenessTime now);
  // The attempt has failed.
  void wait(Call& call, Attempt& attempt, LivenessTime now);
  void advance(int rank, Call& call, LivenessTime now);
  void advance(int rank, Call& call, Attempt& attempt, LivenessTime now);
  void finish_connect(int rank, Call& call, Attempt& attempt, LivenessTime now);
  // Puts the other addresses back in line.
  static void keep_only(Call& call, const Attempt& identified);
  void shake_hands(int rank, Call& call, Attempt& attempt, LivenessTime now);
  std::optional<Answer> outcome(int rank, Call& call, LivenessTime now);
  static void take_leave(Call& call);
  void watch(int descriptor, uint32_t events, int operation);
  LivenessTime soon(LivenessTime now);

  const RankRoster& roster_;
  Descriptor epoll_;
  std::mt19937 random_;
  std::map<int, Call> calls_;  // by rank
};

}  // namespace mpzero
