#include <dlfcn.h>
#include <netdb.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <string_view>

#include "app/http/http_exchange.hpp"
#include "base/error.hpp"
#include "tests/app/http/stand_in_server.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;

namespace {

// Only ends a test that hangs.
constexpr std::chrono::seconds kLong{60};

// Look-ups of "hangs.test" wait until it is opened.
class NameServer {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait_for(lock, kLong / 4, [&] { return answers_; });
    answers_ = true;
  }
  void wait_until_asked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ > 0; });
  }
  void answer() {
    const std::lock_guard lock(mutex_);
    answers_ = true;
    changed_.notify_all();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    answers_ = false;
    asked_ = 0;
  }
  // Of the last call of close(): whether it is still so.
  bool hangs() {
    const std::lock_guard lock(mutex_);
    return !answers_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0;
  bool answers_ = false;
};

NameServer& name_server() {
  static auto* server = new NameServer;  // threads that look up outlive main()
  return *server;
}

HttpRequest to_hanging_name() { return {.host = "hangs.test", .port = "80", .path = "/", .headers = {}}; }

HttpAnswer ask(const StandInServer& server, std::chrono::milliseconds patience = kLong, uint64_t most_bytes = 100) {
  HttpRequest request{.host = "127.0.0.1", .port = server.port(), .path = "/a?b=c", .headers = {{"X-Y", "z"}}};
  request.most_bytes = most_bytes;
  return HttpExchange(request).run(patience);
}

}  // namespace

// The program's own comes before that of libc.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** results) {
  if (node != nullptr && std::string_view(node) == "hangs.test") {
    name_server().wait();
    return EAI_AGAIN;
  }
  static const auto of_libc = reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return of_libc(node, service, hints, results);
}

TEST_CASE("looking up a name costs no more than the patience") {
  name_server().close();
  CHECK_THROWS_WITH(HttpExchange(to_hanging_name()).run(std::chrono::milliseconds(100)),
                    Contains("does not answer in time"));
  CHECK(name_server().hangs());
  name_server().answer();
}

TEST_CASE("stop() ends the wait for a name") {
  name_server().close();
  {
    HttpExchange exchange(to_hanging_name());
    auto answer = std::async(std::launch::async, [&] { return exchange.run(kLong); });
    name_server().wait_until_asked();
    exchange.stop();
    CHECK_THROWS_AS(answer.get(), Failure);
  }
  CHECK(name_server().hangs());
  name_server().answer();
}

TEST_CASE("a name is looked up, and one that is not there is an error") {
  const StandInServer server([](const std::string&) { return StandInServer::page(200, "here"); });
  HttpRequest request{.host = "localhost", .port = server.port(), .path = "/", .headers = {}};
  CHECK(HttpExchange(request).run(kLong).text == "here");
  request.host = "no-such-host.invalid";
  CHECK_THROWS_WITH(HttpExchange(request).run(kLong), Contains("no-such-host.invalid is not found: "));
}

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
