#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/keyed_hash.hpp"

namespace mpzero {

// What a rank proves to others, and wants proof of: that it is this rank of this run.
struct RankCredentials {
  int own = 0;
  int world_size = 1;
  HashBytes secret{};  // which the ranks of this run share
};

// How long a connection may take to identify its other side.
inline constexpr std::chrono::seconds kHandshakeLimit(5);
// The longest line before that, with its end.
inline constexpr size_t kHandshakeLine = 512;

// Two ranks prove to each other that they know the run's secret, without sending it:
//
//   the rank that connects (c)                       the rank that accepts (a)
//     hello RANK NONCE_C CODE("hello", 0)     ->
//                                             <-       challenge NONCE_A CODE("challenge", NONCE_A)
//     proof CODE("proof", NONCE_A)            ->
//
// CODE(word, n) is keyed_hash(secret, word, c, a, world_size, NONCE_C, n). Both nonces are random and new in each
// connection: a recorded handshake proves nothing later, and the words keep one side's code from being the other's.
// The code in the hello only tells those who know the secret from strangers before any state is kept for them; it can
// be replayed, the proof cannot.
//
// The states, and what each event makes of them. Nothing leaves kGone.
//
//   the one that connects   kUnidentified           kIdentified
//   right challenge         kIdentified, proof      stays
//   any other line          kGone                   stays
//   5 s have passed         kGone                   stays
//   end()                   kGone                   kGone
//
//   the one that accepts    kUnidentified           kChallenged     kIdentified
//   right hello             kChallenged, challenge  kGone           stays
//   right proof             kGone                   kIdentified     stays
//   any other line          kGone                   kGone           stays
//   5 s have passed         kGone                   kGone           stays
//   end()                   kGone                   kGone           kGone
//
// A connection calls end() where the other side has closed it or sent too long a line, where there is no room for it,
// and where a line behind the handshake is not the other side's (LineSeal): what is said then is no handshake's matter.
//
// What this keeps out: who reaches the port and does not know the secret, who plays a recorded handshake again, who
// answers in a monitor's place, and, with LineSeal, who changes lines on their way or adds some. What it does not:
// lines are not encrypted, so who reads the network reads steps and errors; who reads MPI's traffic or a rank's memory
// has the secret; who can drop packets can cut a connection, as a broken network does.
class Handshake {
 public:
  enum class Role : uint8_t { kConnects, kAccepts };
  enum class State : uint8_t { kUnidentified, kChallenged, kIdentified, kGone };
  enum class Refusal : uint8_t {
    kNone,
    kNotOurs,      // no line of a handshake, or not the one that was due
    kWrongSecret,  // or another rank, or a replay
    kTooLate,
    kClosed,   // by the other side, or it broke
    kTooLong,  // a line
    kNoRoom,   // for so many
    kChanged   // a line on its way
  };

  // Of the rank that connects to `rank`.
  static Handshake connecting(const RankCredentials& credentials, int rank, LivenessTime now);
  static Handshake accepting(const RankCredentials& credentials, LivenessTime now);

  // The first line, of the one that connects.
  std::string hello() const;
  // The other side's line; what to answer, if anything.
  std::optional<std::string> take(std::string_view line);
  void look_at_clock(LivenessTime now);
  void end(Refusal why);

  State state() const { return state_; }
  bool is_over() const { return state_ == State::kIdentified || state_ == State::kGone; }
  // Why it is gone.
  Refusal refusal() const { return refusal_; }
  Role role() const { return role_; }
  // The other side, once it is challenged or identified; of the one that connects: whom it wants.
  int rank() const { return rank_; }
  // For what is said behind the handshake by the side of this role: another for each connection and direction.
  HashBytes session_key(Role speaker) const;

 private:
  Handshake(Role role, const RankCredentials& credentials, int rank, LivenessTime now);
  std::optional<std::string> take_hello(std::string_view line);
  std::optional<std::string> take_challenge(std::string_view line);
  void take_proof(std::string_view line);
  HashBytes code(std::string_view word, const HashBytes& challenge) const;

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
