#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/liveness/link/rank_status.hpp"

// The messages between ranks over TCP, after the handshake. One rank, the monitor, receives those of all others.
namespace mpzero::message {

// To the monitor.
struct Status {
  RankStatus status;
};
struct Failed {
  std::string error;
  std::vector<int> culprits;  // as in RankReport
};
struct Stop {  // this rank was asked to end with this exit code before there is anything to save, or immediately
  int exit_code = 0;
};

// From the monitor.
struct Pulse {};  // the monitor is alive
struct Ask {};    // requests a Status immediately
struct End {
  int exit_code = 0;
  std::vector<int> kill;  // ranks that cannot end by themselves
};

// To the monitor and from it: the last message of a rank that leaves. The receiver closes the connection.
struct Bye {
  bool with_error = false;  // the rank leaves with its own error, which ends the run
};

using Any = std::variant<Status, Failed, Stop, Pulse, Ask, End, Bye>;

// One line without its end.
std::string to_line(const Any& message);
// std::nullopt if no rank of this version sends such a line.
std::optional<Any> parse(const std::string& line);

}  // namespace mpzero::message
