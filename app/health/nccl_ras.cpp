#include "app/health/nccl_ras.hpp"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <vector>

#include "app/liveness/link/control_channel.hpp"

namespace mpzero {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The protocol of NCCL's own client, src/ras/client.cc in release 2.28: a greeting in each direction, how long the
// service may wait for other processes, then the question. The service answers until it closes the connection.
constexpr const char* kGreeting = "CLIENT PROTOCOL 2";
constexpr const char* kGreetingBack = "SERVER PROTOCOL ";
constexpr const char* kTimeout = "TIMEOUT 1";  // seconds
constexpr const char* kQuestion = "VERBOSE STATUS";
constexpr int kDefaultPort = 28028;

constexpr milliseconds kPatience(4000);
// Enough for a running process. All processes of a machine listen at one port (SO_REUSEPORT): a connection may reach a
// stopped process, and the next connection another one.
constexpr milliseconds kGreetingLimit(200);
constexpr int kAttempts = 10;
constexpr milliseconds kTurn(100);
constexpr int kMostLines = 60;

struct Place {
  std::vector<std::string> addresses;  // numeric
  int port = kDefaultPort;
};

// "localhost:28028", "127.0.0.1:28028" or "[::1]:28028".
Place parse(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = colon == std::string::npos ? "localhost" : address.substr(0, colon);
  Place place;
  if (colon != std::string::npos) {
    std::from_chars(address.data() + colon + 1, address.data() + address.size(), place.port);
  }
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  place.addresses = host == "localhost" ? std::vector<std::string>{"127.0.0.1", "::1"} : std::vector{host};
  return place;
}

class Conversation {
 public:
  Conversation(LineConnection connection, Clock::time_point end, const std::function<void()>& meanwhile)
      : connection_(std::move(connection)), end_(end), meanwhile_(meanwhile) {}

  void say(const char* line) { connection_.send(line); }
  // The next line; std::nullopt once the other side has closed the connection, or at `limit` or `end_`.
  std::optional<std::string> hear(Clock::time_point limit = Clock::time_point::max()) {
    limit = std::min(limit, end_);
    while (lines_.empty()) {
      const auto left = std::chrono::ceil<milliseconds>(limit - Clock::now());
      if (left <= milliseconds(0)) return std::nullopt;
      meanwhile_();
      pollfd wanted{.fd = connection_.descriptor(), .events = POLLIN, .revents = 0};
      if (poll(&wanted, 1, static_cast<int>(std::min(left, kTurn).count())) < 1) continue;
      auto received = connection_.receive();
      if (!received) return std::nullopt;
      lines_ = std::move(*received);
    }
    std::string line = std::move(lines_.front());
    lines_.erase(lines_.begin());
    return line;
  }

 private:
  LineConnection connection_;
  Clock::time_point end_;
  const std::function<void()>& meanwhile_;
  std::vector<std::string> lines_;
};

// Starts a conversation with a process that greets back.
std::optional<Conversation> begin(const Place& place, Clock::time_point end, const std::function<void()>& meanwhile) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    bool listens = false;
    for (const std::string& address : place.addresses) {
      std::optional<LineConnection> connection = connect_to(address, place.port, kGreetingLimit);
      if (!connection) continue;
      listens = true;
      Conversation conversation(std::move(*connection), end, meanwhile);
      conversation.say(kGreeting);
      const std::optional<std::string> answer = conversation.hear(Clock::now() + kGreetingLimit);
      if (answer && answer->starts_with(kGreetingBack)) return conversation;
    }
    if (!listens) break;
  }
  return std::nullopt;
}

// Whether a line is only a separator.
bool is_rule(const std::string& line) { return line.find_first_not_of("= \t\r") == std::string::npos; }

// Whether a line is one of those, hundreds in NCCL 2.28, for ranks of a communicator about which the service has no
// information.
bool names_nobody(const std::string& line) { return line.find("[process information not found]") != std::string::npos; }

}  // namespace

std::string nccl_ras_status(const std::string& address, const std::function<void()>& meanwhile) {
  const Clock::time_point end = Clock::now() + kPatience;
  std::optional<Conversation> conversation = begin(parse(address), end, meanwhile);
  if (!conversation) return "";
  conversation->say(kTimeout);
  if (conversation->hear() != "OK") return "";
  conversation->say(kQuestion);
  std::string text;
  int lines = 0;
  while (const std::optional<std::string> line = conversation->hear()) {
    if (!is_rule(*line) && !names_nobody(*line) && ++lines <= kMostLines) text += "    " + *line + "\n";
  }
  return text;
}

}  // namespace mpzero
