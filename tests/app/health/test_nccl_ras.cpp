#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "app/health/nccl_ras.hpp"
#include "app/liveness/link/control_channel.hpp"
#include "app/liveness/link/listener.hpp"
#include "tests/catch.hpp"
#include "tests/skip.hpp"

// A stand-in for NCCL's RAS service, written from src/ras/client_support.cc of NCCL 2.28.
namespace mpzero {
namespace {

struct Manners {
  int silent_connections = 0;  // like those of a stopped process: the kernel accepts, and nothing answers
  std::string greeting = "SERVER PROTOCOL 2\n";
  std::string status =
      "Job summary\n===========\n\nRank 0 -- [process information not found]\nCommunicators... (0.01s)\n  2 ranks have "
      "launched up to operation 7\n";
  bool closes = true;  // once it has answered
};

class RasService {
 public:
  explicit RasService(Manners manners) : manners_(std::move(manners)), thread_([this] { serve(); }) {}
  ~RasService() {
    ends_ = true;
    thread_.join();
  }
  RasService(const RasService&) = delete;
  RasService& operator=(const RasService&) = delete;

  std::string address(const std::string& host = "127.0.0.1") const {
    return host + ":" + std::to_string(listener_.port());
  }
  // What clients have sent so far.
  std::vector<std::string> heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  void serve() {
    std::vector<LineConnection> kept;
    while (!ends_) {
      std::optional<LineConnection> client = listener_.accept().connection;
      if (!client) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      if (manners_.silent_connections-- > 0) {
        kept.push_back(std::move(*client));
        continue;
      }
      answer(*client);
      if (!manners_.closes) kept.push_back(std::move(*client));
    }
  }

  void answer(LineConnection& client) {
    while (!ends_) {
      const auto lines = client.receive();
      if (!lines) return;
      for (const std::string& line : *lines) {
        {
          const std::lock_guard lock(mutex_);
          heard_.push_back(line);
        }
        if (line.starts_with("CLIENT PROTOCOL ")) say(client, manners_.greeting);
        if (line.starts_with("TIMEOUT ")) say(client, "OK\n");
        if (line == "VERBOSE STATUS") {
          say(client, manners_.status);
          return;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  static void say(LineConnection& client, std::string text) {
    if (text.empty()) return;
    REQUIRE(text.back() == '\n');
    text.pop_back();
    client.send(text);
  }

  Manners manners_;
  Listener listener_{{"127.0.0.1"}};
  std::mutex mutex_;
  std::vector<std::string> heard_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

constexpr const char* kAnswer =
    "    Job summary\n    Communicators... (0.01s)\n      2 ranks have launched up to operation 7\n";

}  // namespace

TEST_CASE("NCCL's RAS service receives a greeting, a timeout and the question") {
  RasService service({});
  CHECK(nccl_ras_status(service.address()) == kAnswer);
  CHECK(service.heard() == std::vector<std::string>{"CLIENT PROTOCOL 2", "TIMEOUT 1", "VERBOSE STATUS"});
  CHECK(nccl_ras_status(service.address("localhost")) == kAnswer);
}

TEST_CASE("A stopped process is skipped for another one that listens at the same port") {
  RasService service({.silent_connections = 2});
  CHECK(nccl_ras_status(service.address()) == kAnswer);
}

TEST_CASE("Without a service at the port, or with a different one, the result is empty") {
  int free_port = 0;
  { free_port = Listener({"127.0.0.1"}).port(); }
  CHECK(nccl_ras_status("127.0.0.1:" + std::to_string(free_port)).empty());
  CHECK(nccl_ras_status("no number:1").empty());
  RasService service({.greeting = "220 mail.example.com\n"});
  CHECK(nccl_ras_status(service.address()).empty());
}

TEST_CASE("An answer that stalls is returned as far as it has arrived, and `meanwhile` is called during the wait") {
  RasService service({.status = "Job summary\nCommunicators... (0.01s)\n", .closes = false});
  int turns = 0;
  CHECK(nccl_ras_status(service.address(), [&] { ++turns; }) == "    Job summary\n    Communicators... (0.01s)\n");
  CHECK(turns > 5);
}

TEST_CASE("A long answer is cut") {
  std::string status;
  for (int line = 0; line < 500; ++line) status += "Rank " + std::to_string(line) + "\n";
  RasService service({.status = status});
  const std::string text = nccl_ras_status(service.address());
  CHECK(std::count(text.begin(), text.end(), '\n') == 60);
  CHECK(text.ends_with("    Rank 59\n"));
}

TEST_CASE("The service is also found at IPv6 addresses", "[ipv6]") {
  const Descriptor listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener || bind(listener.get(), generic, length) != 0) {
    skip_test("IPv6");
    return;
  }
  REQUIRE((listen(listener.get(), 4) == 0 && getsockname(listener.get(), generic, &length) == 0));
  CHECK(connect_to("::1", ntohs(address.sin6_port), std::chrono::milliseconds(1000)));
  const std::string port = std::to_string(ntohs(address.sin6_port));
  std::thread client([&] { nccl_ras_status("[::1]:" + port); });
  // The first connection is from the check above.
  pollfd wanted{.fd = listener.get(), .events = POLLIN, .revents = 0};
  int connections = 0;
  while (connections < 2 && poll(&wanted, 1, 5000) == 1) {
    connections += Descriptor(accept(listener.get(), nullptr, nullptr)) ? 1 : 0;
  }
  CHECK(connections == 2);
  client.join();
}

}  // namespace mpzero
