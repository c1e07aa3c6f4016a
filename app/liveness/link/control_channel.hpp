#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// How long a process that ends waits for its last messages to be received.
inline constexpr std::chrono::milliseconds kFarewell(300);

// An owned file descriptor; the destructor closes it.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

// A TCP connection that carries lines of text. Sending and receiving do not block.
class LineConnection {
 public:
  explicit LineConnection(Descriptor socket);

  int descriptor() const { return socket_.get(); }
  // Sends a line (`line` has no line end), or keeps it until flush() can send it. Drops the line if too many are
  // waiting.
  void send(const std::string& line);
  void flush();
  bool has_unsent() const { return !unsent_.empty(); }
  // Whether there is room for a line of this many bytes.
  bool has_room(size_t bytes) const;
  // No more lines will be sent. What was sent still arrives.
  void end_sending();
  void close();
  // The lines that have arrived; std::nullopt once the other side has closed the connection and everything has been
  // read.
  std::optional<std::vector<std::string>> receive();
  // At most one line; later lines wait. A line longer than `limit` (including its end) closes the connection. No more
  // than `limit` bytes are buffered.
  std::optional<std::vector<std::string>> receive_one(size_t limit);
  bool was_too_long() const { return too_long_; }
  // Whether a line waits for receive(). If none does, `is_closed()` says whether one may still come.
  bool has_line();
  bool is_closed() const { return closed_; }
  // Whether it ended with an error of the network, and was not closed by the other side.
  bool broken_by_network() const;

 private:
  // Reads what has arrived, until `limit` bytes are buffered.
  void read(size_t limit);

  Descriptor socket_;
  std::string unsent_;
  std::string received_;  // bytes of lines that were not returned yet
  bool closed_ = false;
  bool too_long_ = false;
  int error_ = 0;  // that ended it
};

// A numeric IPv4 or IPv6 address with a port, in the form that system calls take.
struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;

  int family() const { return bytes.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
  int port() const;
};
// std::nullopt if `text` is not such an address.
std::optional<SocketAddress> socket_address(const std::string& text, int port);
// "10.1.2.3:4711", "[fd00::2]:4711"
std::string show(const SocketAddress& address);

// A non-blocking socket that programs started by this process do not inherit.
Descriptor make_socket(int family);

// Connects to an IPv4 or IPv6 address; std::nullopt if that fails or takes longer than `limit`.
std::optional<LineConnection> connect_to(const std::string& address, int port, std::chrono::milliseconds limit);

}  // namespace mpzero
