#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mpzero {

struct HttpRequest {
  std::string host;  // a name or an address, without brackets
  std::string port;
  std::string method = "GET";
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers;
  uint64_t most_bytes = uint64_t{1} << 16;  // of the answer's body
};

struct HttpAnswer {
  unsigned status = 0;
  std::string text;
};

// One HTTP request on a connection of its own.
class HttpExchange {
 public:
  explicit HttpExchange(HttpRequest request);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // Call it once. Throws Failure, with a clause without its full stop, if there is no whole answer within `patience`,
  // or after stop().
  HttpAnswer run(std::chrono::milliseconds patience);
  // Ends run(). From any thread.
  void stop();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace mpzero
