#include "app/nccl_ras.hpp"

#include <poll.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "app/liveness/control_channel.hpp"

namespace mpzero {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience(6);
constexpr std::chrono::milliseconds kConnectLimit(1000);
constexpr int kDefaultPort = 28028;
constexpr int kMostLines = 60;

}  // namespace

std::string nccl_ras_status() {
  std::string address = "127.0.0.1";
  int port = kDefaultPort;
  if (const char* given = std::getenv("NCCL_RAS_ADDR"); given != nullptr) {
    const std::string text = given;
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) return "";
    const std::string host = text.substr(0, colon);
    if (host != "localhost") address = host;
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  }
  std::optional<LineConnection> connection = connect_to(address, port, kConnectLimit);
  if (!connection) return "";
  connection->send("verbose status");
  std::string text;
  int lines = 0;
  const Clock::time_point start = Clock::now();
  while (Clock::now() - start < kPatience) {
    pollfd wanted{.fd = connection->descriptor(), .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, 200) < 1) continue;
    const auto received = connection->receive();
    if (!received) break;
    for (const std::string& line : *received) {
      if (++lines <= kMostLines) text += "    " + line + "\n";
    }
  }
  return text;
}

}  // namespace mpzero
