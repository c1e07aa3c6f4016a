#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/liveness/link/rank_status.hpp"

// The messages between ranks over TCP, after the handshake. One rank, the monitor, receives those of all others.
namespace mpzero::message {

// To the monitor.
struct Status {
  static constexpr int64_t kFirst = -1;  // the first message to a new monitor
  RankStatus status;
  int64_t answers = 0;  // the Ask of that number; 0: none
};
// A Status without the collectives, which most heartbeats do without.
struct Beat {
  int64_t step = 0;
  RunPhase phase = RunPhase::kSetUp;
  double idle = 0;
  double allowed = 0;
};
struct Failed {
  std::string error;
  std::vector<int> culprits;  // as in RankReport
};
struct Stop {  // this rank was asked to end with this exit code before there is anything to save, or immediately
  int exit_code = 0;
  std::string leaves_host;  // why the run is to leave this rank's host; empty: a signal asked
};

// This rank has not heard the rank that it reported to, and reports to the receiver from now on.
struct Turned {
  int from = 0;
};
// What comes of a connection to another rank.
enum class Reach : uint8_t {
  kAnswers,     // the rank proves who it is
  kMute,        // its machine accepts the connection, but the rank does not answer
  kRefused,     // nothing listens there any more
  kUnreachable  // no answer of any kind
};
// The answer to Ask::probe, for each of those ranks.
struct Probed {
  int rank = 0;
  Reach reach = Reach::kUnreachable;
};
// The last message to a monitor that has been silent for too long: this rank reports to another one. The monitor reads
// it if it was stopped, or its network cut, for a while.
struct Abandon {};

// The last message of a connection that only found out whether the receiver answers, to any rank. The receiver closes
// it.
struct Visit {};

// From the monitor.
struct Pulse {};           // the monitor is alive
struct Ask {               // requests a Status immediately
  std::vector<int> probe;  // ranks that these ranks are to connect to
  std::vector<int> by;
  int64_t number = 0;
};
struct End {
  int exit_code = 0;
  std::vector<int> kill;  // ranks that cannot end by themselves
};

// To the monitor and from it: the last message of a rank that leaves. The receiver closes the connection.
struct Bye {
  bool with_error = false;  // the rank leaves with its own error, which ends the run
};

using Any = std::variant<Status, Failed, Stop, Pulse, Ask, End, Bye, Turned, Probed, Abandon, Beat, Visit>;

// One line without its end.
std::string to_line(const Any& message);
// std::nullopt if no rank of this version sends such a line.
std::optional<Any> parse(const std::string& line);

}  // namespace mpzero::message
