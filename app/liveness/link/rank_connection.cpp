#include "app/liveness/link/rank_connection.hpp"

#include <utility>

namespace mpzero {
namespace {

// Limit for the lines that wait for the handshake: a status, an error, an end.
constexpr size_t kEarlyLines = 16;

}  // namespace

std::string LineSeal::close(std::string_view line) {
  std::string sealed = to_hex(keyed_hash(key_, line, count_++));
  sealed += ' ';
  sealed += line;
  return sealed;
}

std::optional<std::string> LineSeal::open(std::string_view sealed) {
  if (sealed.size() <= kHexDigits || sealed[kHexDigits] != ' ') return std::nullopt;
  const std::optional<HashBytes> code = from_hex(sealed.substr(0, kHexDigits));
  const std::string_view line = sealed.substr(kHexDigits + 1);
  if (!code || !same_bytes(*code, keyed_hash(key_, line, count_))) return std::nullopt;
  ++count_;
  return std::string(line);
}

RankConnection::RankConnection(LineConnection line, Handshake handshake)
    : line_(std::move(line)), handshake_(std::move(handshake)) {}

RankConnection RankConnection::to(LineConnection line, const RankCredentials& credentials, int rank, LivenessTime now) {
  RankConnection one(std::move(line), Handshake::connecting(credentials, rank, now));
  one.line_.send(one.handshake_.hello());
  return one;
}

RankConnection RankConnection::from(LineConnection line, const RankCredentials& credentials, LivenessTime now) {
  return {std::move(line), Handshake::accepting(credentials, now)};
}

void RankConnection::send(const std::string& line) {
  if (is_identified()) {
    send_sealed(line);
  } else if (!handshake_.is_over() && early_.size() < kEarlyLines) {
    early_.push_back(line);
  }
}

void RankConnection::send_sealed(const std::string& line) {
  // A line that is counted but never sent would invalidate the lines after it.
  if (line_.has_room(kHexDigits + 1 + line.size())) line_.send(outgoing_->close(line));
}

std::optional<std::vector<std::string>> RankConnection::receive() {
  if (!shake_hands()) return std::vector<std::string>{};
  if (!is_identified()) return std::nullopt;
  const auto sealed = line_.receive();
  if (sealed) return open(*sealed);
  end(Handshake::Refusal::kClosed);
  return std::nullopt;
}

bool RankConnection::greet() {
  if (!shake_hands() || !is_identified()) return false;
  if (line_.has_line()) return true;
  if (line_.is_closed()) end(Handshake::Refusal::kClosed);
  return false;
}

bool RankConnection::shake_hands() {
  while (!handshake_.is_over()) {
    const auto line = line_.receive_one(kHandshakeLine);
    if (!line) {
      end(line_.was_too_long() ? Handshake::Refusal::kTooLong : Handshake::Refusal::kClosed);
      break;
    }
    if (line->empty()) return false;
    const std::optional<std::string> answer = handshake_.take(line->front());
    if (answer) line_.send(*answer);
    if (is_identified()) begin_session();
  }
  return true;
}

void RankConnection::begin_session() {
  const bool connects = handshake_.role() == Handshake::Role::kConnects;
  const HashBytes connecting = handshake_.session_key(Handshake::Role::kConnects);
  const HashBytes accepting = handshake_.session_key(Handshake::Role::kAccepts);
  outgoing_.emplace(connects ? connecting : accepting);
  incoming_.emplace(connects ? accepting : connecting);
  for (const std::string& line : std::exchange(early_, {})) send_sealed(line);
}

std::vector<std::string> RankConnection::open(const std::vector<std::string>& sealed) {
  std::vector<std::string> lines;
  for (const std::string& one : sealed) {
    std::optional<std::string> line = incoming_->open(one);
    if (!line) {
      end(Handshake::Refusal::kChanged);
      break;
    }
    lines.push_back(std::move(*line));
  }
  return lines;
}

}  // namespace mpzero
