#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/keyed_hash.hpp"

namespace mpzero {

// What ranks need to prove to each other that they are these ranks of this run.
struct RankCredentials {
  int own = 0;
  int world_size = 1;
  HashBytes secret{};  // shared by the ranks of this run
};

// How long a connection may take to identify its other side.
inline constexpr std::chrono::seconds kHandshakeLimit(5);
// The longest line before that, including its end.
inline constexpr size_t kHandshakeLine = 512;

// Two ranks prove to each other that they know the run's secret, without sending it:
//
//   the rank that connects (c)                       the rank that accepts (a)
//     hello RANK NONCE_C CODE("hello", 0)     ->
//                                             <-       challenge NONCE_A CODE("challenge", NONCE_A)
//     proof CODE("proof", NONCE_A)            ->
//
// CODE(label, n) is keyed_hash(secret, label, c, a, world_size, NONCE_C, n). Both nonces are random and new in each
// connection, so a recorded handshake proves nothing later. The labels keep one side's code from being valid for the
// other side. The code in the hello only separates peers that know the secret from strangers, before any state is kept
// for them. It can be replayed; the proof cannot.
//
// The states and their transitions. No event leaves kClosed.
//
//   the one that connects   kUnidentified           kIdentified
//   right challenge         kIdentified, proof      stays
//   any other line          kClosed                 stays
//   5 s have passed         kClosed                 stays
//   end()                   kClosed                 kClosed
//
//   the one that accepts    kUnidentified           kChallenged     kIdentified
//   right hello             kChallenged, challenge  kClosed         stays
//   right proof             kClosed                 kIdentified     stays
//   any other line          kClosed                 kClosed         stays
//   5 s have passed         kClosed                 kClosed         stays
//   end()                   kClosed                 kClosed         kClosed
//
// A connection calls end() when the other side has closed it or sent a line that is too long, when there is no room for
// it, and when a line after the handshake is not from the other side (LineSeal).
//
// This protects against a peer that reaches the port without knowing the secret, replays a recorded handshake, answers
// in place of a monitor, or (with LineSeal) changes or adds lines in transit. It does not protect against others: lines
// are not encrypted, so anyone who reads the network reads steps and errors; anyone who reads MPI's traffic or a rank's
// memory has the secret; anyone who can drop packets can cut a connection, as a broken network does.
class Handshake {
 public:
  enum class Role : uint8_t { kConnects, kAccepts };
  enum class State : uint8_t { kUnidentified, kChallenged, kIdentified, kClosed };
  enum class Refusal : uint8_t {
    kNone,
    kNotOurs,      // not a line of a handshake, or not the expected one
    kWrongSecret,  // or another rank's, or a replay
    kTooLate,
    kClosed,   // by the other side, or the connection broke
    kTooLong,  // a line is too long
    kNoRoom,   // for so many connections
    kChanged   // a line was altered in transit
  };

  // For the side that connects to `rank`.
  static Handshake connecting(const RankCredentials& credentials, int rank, LivenessTime now);
  static Handshake accepting(const RankCredentials& credentials, LivenessTime now);

  // The first line that the connecting side sends.
  std::string hello() const;
  // Takes a line from the other side. Returns the answer, if there is one.
  std::optional<std::string> take(std::string_view line);
  void look_at_clock(LivenessTime now);
  void end(Refusal why);

  State state() const { return state_; }
  bool is_over() const { return state_ == State::kIdentified || state_ == State::kClosed; }
  // The reason for kClosed.
  Refusal refusal() const { return refusal_; }
  Role role() const { return role_; }
  // The other side's rank: on the accepting side known once challenged or identified, on the connecting side the rank
  // to reach.
  int rank() const { return rank_; }
  // The key for the lines that the side of this role sends after the handshake: a different one for each connection and
  // direction.
  HashBytes session_key(Role speaker) const;

 private:
  Handshake(Role role, const RankCredentials& credentials, int rank, LivenessTime now);
  std::optional<std::string> take_hello(std::string_view line);
  std::optional<std::string> take_challenge(std::string_view line);
  void take_proof(std::string_view line);
  HashBytes code(std::string_view label, const HashBytes& challenge) const;

  Role role_;
  RankCredentials credentials_;
  int rank_;
  LivenessTime start_;
  HashBytes connector_nonce_{};
  HashBytes acceptor_nonce_{};
  State state_ = State::kUnidentified;
  Refusal refusal_ = Refusal::kNone;
};

}  // namespace mpzero
