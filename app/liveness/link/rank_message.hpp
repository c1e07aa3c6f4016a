#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "app/liveness/link/rank_status.hpp"

// What ranks say to each other over TCP once they know who is who. One of them, the monitor, hears from all others.
namespace mpzero::message {

// To the monitor.
struct Status {
  RankStatus status;
};
struct Failed {
  std::string error;
  std::vector<int> culprits;  // as in RankReport
};
struct Stop {  // this rank was asked to end with this exit code before there is anything to save, or at once
  int exit_code = 0;
};

// From the monitor.
struct Pulse {};  // it lives
struct Ask {};    // for a Status, at once
struct End {
  int exit_code = 0;
  std::vector<int> kill;  // ranks that cannot end by themselves
};

// To the monitor and from it: the last word of one that leaves. Who hears it closes the connection.
struct Bye {
  bool with_error = false;  // its own, by which it ends the run
};

using Any = std::variant<Status, Failed, Stop, Pulse, Ask, End, Bye>;

// One line without its end.
std::string to_line(const Any& message);
// Nothing where no rank of ours speaks so.
std::optional<Any> parse(const std::string& line);

}  // namespace mpzero::message
