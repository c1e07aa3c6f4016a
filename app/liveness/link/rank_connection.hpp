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

// The lines of one direction of a connection, each with its code: CODE LINE, where CODE is that of the line and of how
// many came before it. A line that was changed, left out, repeated or moved has no right code.
class LineSeal {
 public:
  explicit LineSeal(const HashBytes& key) : key_(key) {}
  std::string close(std::string_view line);
  // Nothing where the code is not right; then none behind it is, either.
  std::optional<std::string> open(std::string_view sealed);

 private:
  HashBytes key_;
  uint64_t count_ = 0;
};

// A connection between two ranks. Nothing is heard or said on it before each has proved to the other which rank of the
// run it is (Handshake); what is sent earlier waits for that. Neither sending nor receiving waits.
class RankConnection {
 public:
  using State = Handshake::State;

  // Says hello to `rank`.
  static RankConnection to(LineConnection line, const RankCredentials& credentials, int rank, LivenessTime now);
  static RankConnection from(LineConnection line, const RankCredentials& credentials, LivenessTime now);

  State state() const { return handshake_.state(); }
  bool is_identified() const { return state() == State::kIdentified; }
  // Also once it is gone.
  bool was_identified() const { return incoming_.has_value(); }
  Handshake::Refusal refusal() const { return handshake_.refusal(); }
  // Once the other side is identified, or whom this one wants.
  int rank() const { return handshake_.rank(); }
  int descriptor() const { return line_.descriptor(); }

  // A line that finds too many waiting is dropped.
  void send(const std::string& line);
  void flush() { line_.flush(); }
  bool has_unsent() const { return line_.has_unsent() || !early_.empty(); }
  void end_sending() { line_.end_sending(); }
  // The lines that have come, of the identified other side; nothing once the connection is gone: it was closed, it
  // broke, or the other side is not who it should be.
  std::optional<std::vector<std::string>> receive();
  // Who takes longer than kHandshakeLimit is gone.
  void look_at_clock(LivenessTime now) { handshake_.look_at_clock(now); }
  // It is gone; its descriptor is closed with its owner.
  void end(Handshake::Refusal why) { handshake_.end(why); }

 private:
  RankConnection(LineConnection line, Handshake handshake);
  // Whether the handshake is over.
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
