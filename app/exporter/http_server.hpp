#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace mpzero {

// Answers GET /metrics over HTTP, from one thread of its own. A connection that has not asked within `patience`, or has
// not taken its answer within `patience`, is closed; so is each one after its answer. Beyond kMostConnections the
// oldest makes room for a new one.
class HttpServer {
 public:
  static constexpr int kMostConnections = 64;

  // `page` makes the answer, on the server's thread. Port 0: any that is free. Throws std::system_error if it cannot
  // listen there.
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
