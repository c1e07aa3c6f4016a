#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace mpzero {

// Serves GET /metrics over HTTP on its own thread. Closes each connection after the response, or if the request or the
// response takes longer than `patience`. If kMostConnections are open, a new connection replaces the oldest one.
class HttpServer {
 public:
  static constexpr int kMostConnections = 64;

  // `page`: returns the response body; called on the server's thread. `port`: 0 for any free port. Throws
  // std::system_error if the server cannot listen on the port.
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
