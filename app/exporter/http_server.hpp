#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace mpzero {

// Serves GET /metrics over HTTP on its own thread. Closes a connection after its response, or if its request or the
// transfer of its response takes longer than `patience`. If kMostConnections are open, a new one replaces the oldest.
class HttpServer {
 public:
  static constexpr int kMostConnections = 64;

  // `page` returns the response body, on the server's thread. Port 0: any free port. Throws std::system_error if it
  // cannot listen on the port.
  HttpServer(const std::string& address, uint16_t port, std::function<std::string()> page,
             std::chrono::milliseconds patience = std::chrono::seconds(5));
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace mpzero
