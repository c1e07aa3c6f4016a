#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "app/exporter/http_server.hpp"
#include "tests/app/exporter/http_client.hpp"
#include "tests/catch.hpp"

using namespace mpzero;

namespace {

std::string numbered_page() {
  static std::atomic<int> asked{0};
  return "page " + std::to_string(++asked) + "\n";
}

}  // namespace

TEST_CASE("each request gets a page, and the connection is closed") {
  const HttpServer server("127.0.0.1", 0, [] { return std::string("mpzero_up 1\n"); });
  const std::string answer = ask(server.port(), "GET /metrics");
  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(answer.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n") != std::string::npos);
  CHECK(answer.ends_with("\r\n\r\nmpzero_up 1\n"));
  CHECK(ask(server.port(), "GET /metrics?x=1").starts_with("HTTP/1.1 200"));
  CHECK(ask(server.port(), "GET /?metrics").starts_with("HTTP/1.1 200"));
  CHECK(ask(server.port(), "GET /other?/metrics").starts_with("HTTP/1.1 404"));
  const std::string head = ask(server.port(), "HEAD /metrics");
  CHECK((head.find("Content-Length: 12\r\n") != std::string::npos && head.ends_with("\r\n\r\n")));
}

TEST_CASE("requests other than GET /metrics get no page") {
  const HttpServer server("127.0.0.1", 0, [] { return std::string("secret"); });
  CHECK(ask(server.port(), "GET /etc/passwd").starts_with("HTTP/1.1 404"));
  CHECK(ask(server.port(), "DELETE /metrics").starts_with("HTTP/1.1 405"));
  for (const std::string& noise : {std::string("\x16\x03\x01\x02"), std::string("GET /metrics\r\n\r\n"),
                                   "GET /metrics HTTP/1.1\r\nX: " + std::string(1 << 16, 'a') + "\r\n\r\n"}) {
    Client client(server.port());
    client.send(noise + "\r\n\r\n");
    CHECK(client.rest().find("secret") == std::string::npos);
  }
  CHECK(ask(server.port(), "GET /metrics").ends_with("secret"));
}

TEST_CASE("idle connections do not block other connections") {
  const HttpServer server("127.0.0.1", 0, numbered_page);
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i + 1 < HttpServer::kMostConnections; ++i) idle.push_back(std::make_unique<Client>(server.port()));
  CHECK(ask(server.port(), "GET /metrics").starts_with("HTTP/1.1 200"));
  // Beyond the most, the one that has been silent for longest makes room, also in the middle of a request.
  idle.front()->send("GET /met");
  for (int i = 0; i < 1000; ++i) idle.push_back(std::make_unique<Client>(server.port()));
  for (int i = 0; i < 100; ++i) CHECK(ask(server.port(), "GET /metrics").starts_with("HTTP/1.1 200"));
  CHECK(idle.front()->rest().empty());
}

TEST_CASE("a connection without a request is closed after a timeout") {
  const HttpServer server("127.0.0.1", 0, numbered_page, std::chrono::milliseconds(1));
  Client silent(server.port());
  CHECK(silent.rest().empty());
  Client halfway(server.port());
  halfway.send("GET /met");
  CHECK(halfway.rest().empty());
}

TEST_CASE("the timeout of a response starts when the response is ready") {
  constexpr std::chrono::milliseconds kPatience(300);
  // More than is sent at once.
  const std::string page(8 << 20, 'x');
  const auto slow_page = [&] {
    std::this_thread::sleep_for(2 * kPatience);
    return page;
  };
  const HttpServer server("127.0.0.1", 0, slow_page, kPatience);
  // On a slow machine a request, or the client's reading, may take too long.
  std::string answer;
  for (int i = 0; i < 20 && !answer.ends_with(page); ++i) answer = ask(server.port(), "GET /metrics");
  CHECK(answer.size() > page.size());
}

TEST_CASE("connections that do not read the response are closed after a timeout") {
  // More than the system keeps for a connection.
  const std::string page(8 << 20, 'x');
  const HttpServer server("127.0.0.1", 0, [&] { return page; }, std::chrono::milliseconds(50));
  std::vector<std::unique_ptr<Client>> deaf;
  for (int i = 0; i < HttpServer::kMostConnections; ++i) {
    deaf.push_back(std::make_unique<Client>(server.port(), 4096));
    deaf.back()->send("GET /metrics HTTP/1.1\r\n\r\n");
  }
  // Only ends a test that hangs.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string answer;
  while (answer.empty() && std::chrono::steady_clock::now() < deadline) answer = ask(server.port(), "GET /other");
  CHECK(answer.starts_with("HTTP/1.1 404"));
  CHECK(deaf.front()->rest().size() < page.size());
}

TEST_CASE("a server with open connections can be destroyed") {
  auto server = std::make_unique<HttpServer>("127.0.0.1", 0, numbered_page);
  Client idle(server->port());
  Client halfway(server->port());
  halfway.send("GET /met");
  server.reset();
  CHECK((idle.rest().empty() && halfway.rest().empty()));
}

TEST_CASE("a port in use and an invalid address are errors") {
  const HttpServer server("127.0.0.1", 0, numbered_page);
  CHECK_THROWS_AS(HttpServer("127.0.0.1", server.port(), numbered_page), std::system_error);
  CHECK_THROWS_AS(HttpServer("localhost:80", 0, numbered_page), std::system_error);
  CHECK_THROWS_AS(HttpServer("192.0.2.1", 0, numbered_page), std::system_error);
}
