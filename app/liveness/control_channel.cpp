#include "app/liveness/control_channel.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace mpzero {
namespace {

// Of one rank's words: many seconds' worth.
constexpr size_t kUnsentLimit = size_t{1} << 20;
// Longer than any line of ours: whoever sends it is not one of our ranks.
constexpr size_t kLineLimit = size_t{1} << 22;

Descriptor make_socket(int family = AF_INET) {
  return Descriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// An address in numbers, for connect(); its length is 0 where it is none.
struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

Address parse_address(const std::string& text, int port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.bytes);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.bytes);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    address.length = sizeof *v4;
  } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    address.length = sizeof *v6;
  }
  return address;
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

LineConnection::LineConnection(Descriptor socket) : socket_(std::move(socket)) {
  const int yes = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void LineConnection::send(const std::string& line) {
  if (unsent_.size() + line.size() > kUnsentLimit) return;
  unsent_ += line;
  unsent_ += '\n';
  flush();
}

void LineConnection::flush() {
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      // A connection that is gone shows when it is read.
      if (errno != EAGAIN) unsent_.clear();
      return;
    }
    unsent_.erase(0, static_cast<size_t>(sent));
  }
}

void LineConnection::end_sending() { shutdown(socket_.get(), SHUT_WR); }

void LineConnection::close() {
  socket_ = Descriptor();
  closed_ = true;
}

std::optional<std::vector<std::string>> LineConnection::receive() {
  std::array<char, 16384> bytes{};
  while (!closed_) {
    const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0 || received_.size() > kLineLimit) {
      closed_ = true;
      break;
    }
    received_.append(bytes.data(), static_cast<size_t>(count));
  }
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end = 0; (end = received_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(received_.substr(begin, end - begin));
  }
  received_.erase(0, begin);
  if (lines.empty() && closed_) return std::nullopt;
  return lines;
}

Listener::Listener() : socket_(make_socket()) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket_ || bind(socket_.get(), generic, length) != 0 || listen(socket_.get(), SOMAXCONN) != 0 ||
      getsockname(socket_.get(), generic, &length) != 0) {
    throw_failure("no TCP port could be opened for the ranks' heartbeats: {}", std::strerror(errno));
  }
  port_ = ntohs(address.sin_port);
}

std::optional<LineConnection> Listener::accept() {
  Descriptor socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return std::nullopt;
  return LineConnection(std::move(socket));
}

std::optional<LineConnection> connect_to(const std::string& address, int port, std::chrono::milliseconds limit) {
  const Address to = parse_address(address, port);
  if (to.length == 0) return std::nullopt;
  Descriptor socket = make_socket(to.bytes.ss_family);
  if (!socket) return std::nullopt;
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.bytes), to.length) != 0) {
    if (errno != EINPROGRESS) return std::nullopt;
    pollfd wanted{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    if (poll(&wanted, 1, static_cast<int>(limit.count())) != 1) return std::nullopt;
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) return std::nullopt;
  }
  return LineConnection(std::move(socket));
}

}  // namespace mpzero
