#pragma once

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
  // Nothing more will be sent; what has been still arrives.
  void end_sending();
  void close();
  // The lines that have come; nothing once the other side has closed the connection and all has been read.
  std::optional<std::vector<std::string>> receive();

 private:
  Descriptor socket_;
  std::string unsent_;
  std::string received_;  // the beginning of a line
  bool closed_ = false;
};

// Where other ranks connect to, on a port that the system chooses.
class Listener {
 public:
  // Throws Failure.
  Listener();
  int descriptor() const { return socket_.get(); }
  int port() const { return port_; }
  // A connection that has come, or nothing.
  std::optional<LineConnection> accept();

 private:
  Descriptor socket_;
  int port_ = 0;
};

// Connects to an IPv4 or IPv6 address; nothing where that fails or takes longer.
std::optional<LineConnection> connect_to(const std::string& address, int port, std::chrono::milliseconds limit);

}  // namespace mpzero
