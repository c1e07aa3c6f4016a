#include "app/liveness/link/control_channel.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace mpzero {
namespace {

// Limit for the unsent data of one connection: many seconds of messages.
constexpr size_t kUnsentLimit = size_t{1} << 20;
// Longer than any line that a rank sends. A sender of a longer line is not a rank of this run.
constexpr size_t kLineLimit = size_t{1} << 22;

}  // namespace

int SocketAddress::port() const {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bytes)->sin6_port
                                    : reinterpret_cast<const sockaddr_in*>(&bytes)->sin_port);
}

std::optional<SocketAddress> socket_address(const std::string& text, int port) {
  SocketAddress address;
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
  } else {
    return std::nullopt;
  }
  return address;
}

std::string show(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool is_v6 = address.family() == AF_INET6;
  const void* number = is_v6
                           ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&address.bytes)->sin6_addr)
                           : &reinterpret_cast<const sockaddr_in*>(&address.bytes)->sin_addr;
  if (inet_ntop(address.family(), number, text.data(), text.size()) == nullptr) return "an unknown address";
  return is_v6 ? fmt::format("[{}]:{}", text.data(), address.port())
               : fmt::format("{}:{}", text.data(), address.port());
}

Descriptor make_socket(int family) { return Descriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

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
  if (!has_room(line.size())) return;
  unsent_ += line;
  unsent_ += '\n';
  flush();
}

bool LineConnection::has_room(size_t bytes) const { return unsent_.size() + bytes <= kUnsentLimit; }

void LineConnection::flush() {
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno == EAGAIN) return;
      // A broken connection is detected when it is read. The system reports its error only once: here.
      if (error_ == 0) error_ = errno;
      return unsent_.clear();
    }
    unsent_.erase(0, static_cast<size_t>(sent));
  }
}

void LineConnection::end_sending() { shutdown(socket_.get(), SHUT_WR); }

bool LineConnection::broken_by_network() const {
  return error_ == ETIMEDOUT || error_ == EHOSTUNREACH || error_ == ENETUNREACH || error_ == ENETDOWN;
}

void LineConnection::close() {
  socket_ = Descriptor();
  closed_ = true;
}

void LineConnection::read(size_t limit) {
  std::array<char, 16384> bytes;
  while (!closed_ && received_.size() < limit) {
    const size_t most = std::min(bytes.size(), limit - received_.size());
    const ssize_t count = recv(socket_.get(), bytes.data(), most, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {
      if (count < 0 && error_ == 0) error_ = errno;
      closed_ = true;
      break;
    }
    received_.append(bytes.data(), static_cast<size_t>(count));
    // Nothing more waits; asking once more would cost a system call per message. The end is read the next time.
    if (static_cast<size_t>(count) < most) break;
  }
}

std::optional<std::vector<std::string>> LineConnection::receive_one(size_t limit) {
  if (received_.find('\n') == std::string::npos) read(limit);
  const size_t end = received_.find('\n');
  if (end < limit) {
    std::vector<std::string> line = {received_.substr(0, end)};
    received_.erase(0, end + 1);
    return line;
  }
  too_long_ = received_.size() >= limit;
  closed_ = closed_ || too_long_;
  if (closed_) return std::nullopt;
  return std::vector<std::string>{};
}

std::optional<std::vector<std::string>> LineConnection::receive() {
  read(kLineLimit);
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end = 0; (end = received_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(received_.substr(begin, end - begin));
  }
  received_.erase(0, begin);
  too_long_ = received_.size() >= kLineLimit;
  closed_ = closed_ || too_long_;
  if (lines.empty() && closed_) return std::nullopt;
  return lines;
}

bool LineConnection::has_line() {
  if (received_.find('\n') == std::string::npos) read(kLineLimit);
  return received_.find('\n') != std::string::npos;
}

std::optional<LineConnection> connect_to(const std::string& address, int port, std::chrono::milliseconds limit) {
  const std::optional<SocketAddress> to = socket_address(address, port);
  if (!to) return std::nullopt;
  Descriptor socket = make_socket(to->family());
  if (!socket) return std::nullopt;
  if (connect(socket.get(), to->get(), to->length) != 0) {
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
