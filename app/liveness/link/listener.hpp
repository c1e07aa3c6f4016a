#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/link/control_channel.hpp"

namespace mpzero {

// Whether this machine has the address.
bool can_listen_on(const std::string& address);

// Where other ranks connect to: some addresses of this machine, all with the same port, which the system chooses.
class Listener {
 public:
  enum class Outcome : uint8_t {
    kNobody,      // no connection waits
    kAccepted,    // a connection
    kTurnedAway,  // a connection was closed because the process or the machine has no free descriptor
    kFailed       // a connection could not even be turned away: try again later
  };
  struct Visit {
    Outcome outcome = Outcome::kNobody;
    std::optional<LineConnection> connection;  // kAccepted
    std::string from;                          // "10.1.2.3:4711"; for kAccepted and kTurnedAway
  };

  // IPv4 and IPv6 addresses; without addresses no rank can connect. Throws Failure, naming the address.
  explicit Listener(const std::vector<std::string>& addresses);

  std::vector<int> descriptors() const;
  // 0: not listening.
  int port() const { return port_; }
  // Accepts one waiting connection. Does not block. Takes the addresses in turn.
  Visit accept();

 private:
  Visit accept_at(int socket);
  Visit turn_away(int socket);

  std::vector<Descriptor> sockets_;
  int port_ = 0;
  size_t next_ = 0;
  // A spare descriptor for the case that no other is free. It is released to accept a connection and close it;
  // otherwise that connection would stay pending, and the system would report it again and again.
  Descriptor reserve_;
};

}  // namespace mpzero
