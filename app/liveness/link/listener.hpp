#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/link/control_channel.hpp"

namespace mpzero {

// Where other ranks connect to: some addresses of this machine, and one port of all of them that the system chooses.
class Listener {
 public:
  enum class Outcome : uint8_t {
    kNobody,      // waits
    kAccepted,    // a connection
    kTurnedAway,  // one for which the process or the machine has no descriptor: it was closed
    kFailed       // nor could one be turned away: the next attempt is for later
  };
  struct Visit {
    Outcome outcome = Outcome::kNobody;
    std::optional<LineConnection> connection;  // kAccepted
    std::string from;                          // "10.1.2.3:4711"; of kAccepted and kTurnedAway
  };

  // IPv4 and IPv6 addresses; with none of them nobody can connect. Throws Failure, naming the address.
  explicit Listener(const std::vector<std::string>& addresses);

  std::vector<int> descriptors() const;
  // 0: nowhere.
  int port() const { return port_; }
  // One connection that has come. Does not wait. All addresses have their turn.
  Visit accept();

 private:
  Visit accept_at(int socket);
  Visit turn_away(int socket);

  std::vector<Descriptor> sockets_;
  int port_ = 0;
  size_t next_ = 0;
  // Kept for the moment in which there is no other: given up, it takes a connection in, to be closed. Otherwise that
  // would stay, and the system would tell of it again and again.
  Descriptor reserve_;
};

}  // namespace mpzero
