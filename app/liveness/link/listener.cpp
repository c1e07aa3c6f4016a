#include "app/liveness/link/listener.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace mpzero {
namespace {

Descriptor spare_descriptor() { return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// std::nullopt if the port is taken. Throws Failure for any other error.
std::optional<Descriptor> listen_at(const std::string& text, int port) {
  const std::optional<SocketAddress> address = socket_address(text, port);
  if (!address) throw_failure("this rank cannot listen on \"{}\": it is not an IP address", text);
  Descriptor socket = make_socket(address->family());
  const int yes = 1;
  if (address->family() == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  if (socket && bind(socket.get(), address->get(), address->length) == 0 && listen(socket.get(), SOMAXCONN) == 0) {
    return socket;
  }
  if (errno == EADDRINUSE && port != 0) return std::nullopt;
  throw_failure("no TCP port of {} could be opened for the ranks' heartbeats: {}", text, std::strerror(errno));
}

int port_of(const Descriptor& socket) {
  SocketAddress address{.bytes = {}, .length = sizeof(sockaddr_storage)};
  if (getsockname(socket.get(), address.get(), &address.length) != 0) {
    throw_failure("getsockname failed: {}", std::strerror(errno));
  }
  return address.port();
}

// Listens on all addresses at the port that the system chooses for the first. Returns fewer sockets if that port is
// taken on one of them.
std::vector<Descriptor> listen_on(const std::vector<std::string>& addresses) {
  std::vector<Descriptor> sockets;
  for (const std::string& address : addresses) {
    std::optional<Descriptor> socket = listen_at(address, sockets.empty() ? 0 : port_of(sockets.front()));
    if (!socket) break;
    sockets.push_back(std::move(*socket));
  }
  return sockets;
}

bool lacks_descriptors(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

}  // namespace

bool can_listen_on(const std::string& address) {
  const std::optional<SocketAddress> any_port = socket_address(address, 0);
  if (!any_port) return false;
  const Descriptor socket = make_socket(any_port->family());
  return socket && bind(socket.get(), any_port->get(), any_port->length) == 0;
}

Listener::Listener(const std::vector<std::string>& addresses) : reserve_(spare_descriptor()) {
  constexpr int kAttempts = 32;
  for (int i = 0; i < kAttempts && sockets_.size() < addresses.size(); ++i) sockets_ = listen_on(addresses);
  if (sockets_.size() < addresses.size()) {
    throw_failure("no TCP port is free on {} and {} for the ranks' heartbeats", addresses.front(),
                  addresses[sockets_.size()]);
  }
  if (!sockets_.empty()) port_ = port_of(sockets_.front());
}

std::vector<int> Listener::descriptors() const {
  std::vector<int> descriptors;
  for (const Descriptor& socket : sockets_) descriptors.push_back(socket.get());
  return descriptors;
}

Listener::Visit Listener::accept() {
  if (!reserve_) reserve_ = spare_descriptor();
  for (size_t i = 0; i < sockets_.size(); ++i) {
    Visit visit = accept_at(sockets_[next_].get());
    next_ = (next_ + 1) % sockets_.size();
    if (visit.outcome != Outcome::kNobody) return visit;
  }
  return {};
}

Listener::Visit Listener::accept_at(int socket) {
  SocketAddress from{.bytes = {}, .length = sizeof(sockaddr_storage)};
  Descriptor accepted;
  do {
    accepted = Descriptor(accept4(socket, from.get(), &from.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // A connection that broke while waiting says nothing about the next one.
  } while (!accepted && (errno == EINTR || errno == ECONNABORTED));
  if (accepted) {
    return {.outcome = Outcome::kAccepted, .connection = LineConnection(std::move(accepted)), .from = show(from)};
  }
  return lacks_descriptors(errno) ? turn_away(socket) : Visit{};
}

Listener::Visit Listener::turn_away(int socket) {
  SocketAddress from{.bytes = {}, .length = sizeof(sockaddr_storage)};
  reserve_ = Descriptor();
  Descriptor accepted(accept4(socket, from.get(), &from.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool closed = static_cast<bool>(accepted);
  // The system looks for a free descriptor before it looks for a waiting connection.
  const bool nobody = !closed && errno == EAGAIN;
  accepted = Descriptor();
  reserve_ = spare_descriptor();
  if (nobody) return {};
  if (!closed) return {.outcome = Outcome::kFailed, .connection = std::nullopt, .from = {}};
  return {.outcome = Outcome::kTurnedAway, .connection = std::nullopt, .from = show(from)};
}

}  // namespace mpzero
