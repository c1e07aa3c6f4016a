#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/control_channel.hpp"
#include "app/liveness/link/handshake.hpp"

namespace mpzero {

// Authenticates the lines of one direction of a connection: each is sent as CODE LINE, where CODE depends on the line
// and on the number of lines before it. The code does not match if a line was changed, left out, repeated or moved.
class LineSeal {
 public:
  explicit LineSeal(const HashBytes& key) : key_(key) {}
  std::string close(std::string_view line);
  // std::nullopt if the code does not match; then no later one matches either.
  std::optional<std::string> open(std::string_view sealed);

 private:
  HashBytes key_;
  uint64_t count_ = 0;
};

// A connection between two ranks. No messages are exchanged before each side has proved to the other which rank of the
// run it is (Handshake); lines that are sent earlier wait for that. Sending and receiving do not block.
class RankConnection {
 public:
  using State = Handshake::State;

  // Says hello to `rank`.
  static RankConnection to(LineConnection line, const RankCredentials& credentials, int rank, LivenessTime now);
  static RankConnection from(LineConnection line, const RankCredentials& credentials, LivenessTime now);

  State state() const { return handshake_.state(); }
  bool is_identified() const { return state() == State::kIdentified; }
  // Stays true after the connection is gone.
  bool was_identified() const { return incoming_.has_value(); }
  Handshake::Refusal refusal() const { return handshake_.refusal(); }
  // The other side's rank, once identified; on the connecting side the rank to reach.
  int rank() const { return handshake_.rank(); }
  int descriptor() const { return line_.descriptor(); }

  // Drops the line if too many are waiting.
  void send(const std::string& line);
  void flush() { line_.flush(); }
  bool broken_by_network() const { return line_.broken_by_network(); }
  bool has_unsent() const { return line_.has_unsent() || !early_.empty(); }
  void end_sending() { line_.end_sending(); }
  // The lines that have arrived from the identified other side; std::nullopt once the connection is gone: it was
  // closed, it broke, or the other side is not the expected rank.
  std::optional<std::vector<std::string>> receive();
  // Continues the handshake, and returns whether the other side has said something after it. That is kept for
  // receive().
  bool greet();
  // Ends a handshake that takes longer than kHandshakeLimit.
  void look_at_clock(LivenessTime now) { handshake_.look_at_clock(now); }
  // Marks the connection as gone. The destructor closes its descriptor.
  void end(Handshake::Refusal why) { handshake_.end(why); }

 private:
  RankConnection(LineConnection line, Handshake handshake);
  // Continues the handshake. Returns whether it is over.
  bool shake_hands();
  void begin_session();
  void send_sealed(const std::string& line);
  std::vector<std::string> open(const std::vector<std::string>& sealed);

  LineConnection line_;
  Handshake handshake_;
  std::deque<std::string> early_;  // what was sent before the other side was identified
  std::optional<LineSeal> outgoing_;
  std::optional<LineSeal> incoming_;
};

}  // namespace mpzero
