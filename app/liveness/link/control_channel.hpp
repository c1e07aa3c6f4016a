#pragma once

#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// How long a process that ends waits for its last words to be heard.
inline constexpr std::chrono::milliseconds kFarewell(300);

// A file descriptor that is closed with its owner.
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

// A TCP connection that carries lines of text. Neither sending nor receiving waits.
class LineConnection {
 public:
  explicit LineConnection(Descriptor socket);

  int descriptor() const { return socket_.get(); }
  // Sends a line, without its end, or keeps it until flush() can. A line that finds too many waiting is dropped.
  void send(const std::string& line);
  void flush();
  bool has_unsent() const { return !unsent_.empty(); }
  // Whether a line of so many bytes would be kept.
  bool has_room(size_t bytes) const;
  // Nothing more will be sent; what has been still arrives.
  void end_sending();
  void close();
  // The lines that have come; nothing once the other side has closed the connection and all has been read.
  std::optional<std::vector<std::string>> receive();
  // One line at the most; what comes behind it waits. A line that is longer than `limit`, with its end, closes the
  // connection, and no more than that is kept of what its sender sends.
  std::optional<std::vector<std::string>> receive_one(size_t limit);
  bool was_too_long() const { return too_long_; }

 private:
  // Reads what has come, until `limit` bytes are kept.
  void read(size_t limit);

  Descriptor socket_;
  std::string unsent_;
  std::string received_;  // what no line was taken of yet
  bool closed_ = false;
  bool too_long_ = false;
};

// An IPv4 or IPv6 address in numbers with a port, as the system's calls want it.
struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;

  int family() const { return bytes.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
  int port() const;
};
// Nothing where `text` is no such address.
std::optional<SocketAddress> socket_address(const std::string& text, int port);
// "10.1.2.3:4711", "[fd00::2]:4711"
std::string show(const SocketAddress& address);

// That neither blocks nor passes to a program that this process starts.
Descriptor make_socket(int family);

// Connects to an IPv4 or IPv6 address; nothing where that fails or takes longer.
std::optional<LineConnection> connect_to(const std::string& address, int port, std::chrono::milliseconds limit);

}  // namespace mpzero
