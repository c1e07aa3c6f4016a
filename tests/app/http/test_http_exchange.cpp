#include <future>

#include "app/http/http_exchange.hpp"
#include "base/error.hpp"
#include "tests/app/http/stand_in_server.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;

namespace {

// Only ends a test that hangs.
constexpr std::chrono::seconds kLong{60};

HttpAnswer ask(const StandInServer& server, std::chrono::milliseconds patience = kLong, uint64_t most_bytes = 100) {
  HttpRequest request{.host = "127.0.0.1", .port = server.port(), .path = "/a?b=c", .headers = {{"X-Y", "z"}}};
  request.most_bytes = most_bytes;
  return HttpExchange(request).run(patience);
}

}  // namespace

TEST_CASE("a request has its method, path and headers, and the answer its status and text") {
  std::string seen;
  const StandInServer server([&](const std::string& request) {
    seen = request;
    return StandInServer::page(404, "nothing here");
  });
  const HttpAnswer answer = ask(server);
  CHECK(answer.status == 404);
  CHECK(answer.text == "nothing here");
  CHECK_THAT(seen,
             Catch::StartsWith("GET /a?b=c HTTP/1.1\r\n") && Contains("X-Y: z\r\n") && Contains("Host: 127.0.0.1"));
}

TEST_CASE("an answer that is too large is refused before it is read") {
  for (const char* length : {"101", "9999999999", "18446744073709551615"}) {
    const StandInServer server([&](const std::string&) {
      return "HTTP/1.1 200 OK\r\nContent-Length: " + std::string(length) + "\r\n\r\n" + std::string(200, 'x');
    });
    CHECK_THROWS_WITH(ask(server), Contains("body limit exceeded"));
  }
  // Without a length, and in chunks.
  const StandInServer endless([](const std::string&) { return "HTTP/1.1 200 OK\r\n\r\n" + std::string(300, 'x'); });
  CHECK_THROWS_AS(ask(endless, std::chrono::milliseconds(500)), Failure);
}

TEST_CASE("an answer of exactly the limit is taken") {
  const StandInServer server([](const std::string&) { return StandInServer::page(200, std::string(100, 'x')); });
  CHECK(ask(server).text.size() == 100);
}

TEST_CASE("a server that hangs costs no more than the patience, and stop() ends the wait") {
  std::promise<void> asked;
  std::atomic<int> count = 0;
  const StandInServer server([&](const std::string&) {
    if (count++ == 1) asked.set_value();
    return "";
  });
  CHECK_THROWS_WITH(ask(server, std::chrono::milliseconds(200)), Contains("does not answer in time"));
  HttpExchange exchange({.host = "127.0.0.1", .port = server.port(), .path = "/", .headers = {}});
  auto answer = std::async(std::launch::async, [&] { return exchange.run(kLong); });
  asked.get_future().wait();
  exchange.stop();
  CHECK_THROWS_AS(answer.get(), Failure);
}
