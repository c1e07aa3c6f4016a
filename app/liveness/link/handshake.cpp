#include "app/liveness/link/handshake.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace mpzero {
namespace {

// The fields of "name field field …", separated by single spaces; std::nullopt if their number or the name is another.
std::optional<std::vector<std::string_view>> fields_of(std::string_view line, std::string_view name, size_t count) {
  std::vector<std::string_view> fields;
  for (size_t begin = 0; begin <= line.size() && fields.size() <= count + 1;) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  if (fields.size() != count + 1 || fields.front() != name) return std::nullopt;
  fields.erase(fields.begin());
  return fields;
}

std::optional<int> number_in(std::string_view field) {
  int number = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return number;
}

}  // namespace

Handshake::Handshake(Role role, const RankCredentials& credentials, int rank, LivenessTime now)
    : role_(role), credentials_(credentials), rank_(rank), start_(now) {}

Handshake Handshake::connecting(const RankCredentials& credentials, int rank, LivenessTime now) {
  Handshake one(Role::kConnects, credentials, rank, now);
  one.connector_nonce_ = random_bytes();
  return one;
}

Handshake Handshake::accepting(const RankCredentials& credentials, LivenessTime now) {
  return {Role::kAccepts, credentials, -1, now};
}

std::string Handshake::hello() const {
  return fmt::format("hello {} {} {}", credentials_.own, to_hex(connector_nonce_), to_hex(code("hello", {})));
}

std::optional<std::string> Handshake::take(std::string_view line) {
  if (is_over()) return std::nullopt;
  if (role_ == Role::kConnects) return take_challenge(line);
  if (state_ == State::kUnidentified) return take_hello(line);
  take_proof(line);
  return std::nullopt;
}

std::optional<std::string> Handshake::take_hello(std::string_view line) {
  const auto fields = fields_of(line, "hello", 3);
  const std::optional<int> rank = fields ? number_in(fields->at(0)) : std::nullopt;
  const std::optional<HashBytes> nonce = fields ? from_hex(fields->at(1)) : std::nullopt;
  const std::optional<HashBytes> proof = fields ? from_hex(fields->at(2)) : std::nullopt;
  if (!rank || !nonce || !proof) {
    end(Refusal::kNotOurs);
    return std::nullopt;
  }
  rank_ = *rank;
  connector_nonce_ = *nonce;
  const bool is_another_rank = rank_ >= 0 && rank_ < credentials_.world_size && rank_ != credentials_.own;
  if (!is_another_rank || !same_bytes(*proof, code("hello", {}))) {
    end(Refusal::kWrongSecret);
    return std::nullopt;
  }
  acceptor_nonce_ = random_bytes();
  state_ = State::kChallenged;
  return fmt::format("challenge {} {}", to_hex(acceptor_nonce_), to_hex(code("challenge", acceptor_nonce_)));
}

std::optional<std::string> Handshake::take_challenge(std::string_view line) {
  const auto fields = fields_of(line, "challenge", 2);
  const std::optional<HashBytes> nonce = fields ? from_hex(fields->at(0)) : std::nullopt;
  const std::optional<HashBytes> proof = fields ? from_hex(fields->at(1)) : std::nullopt;
  if (!nonce || !proof) {
    end(Refusal::kNotOurs);
    return std::nullopt;
  }
  acceptor_nonce_ = *nonce;
  if (!same_bytes(*proof, code("challenge", acceptor_nonce_))) {
    end(Refusal::kWrongSecret);
    return std::nullopt;
  }
  state_ = State::kIdentified;
  return fmt::format("proof {}", to_hex(code("proof", acceptor_nonce_)));
}

void Handshake::take_proof(std::string_view line) {
  const auto fields = fields_of(line, "proof", 1);
  const std::optional<HashBytes> proof = fields ? from_hex(fields->at(0)) : std::nullopt;
  if (!proof) return end(Refusal::kNotOurs);
  if (!same_bytes(*proof, code("proof", acceptor_nonce_))) return end(Refusal::kWrongSecret);
  state_ = State::kIdentified;
}

void Handshake::look_at_clock(LivenessTime now) {
  if (!is_over() && now - start_ >= kHandshakeLimit) end(Refusal::kTooLate);
}

void Handshake::end(Refusal why) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  refusal_ = why;
}

HashBytes Handshake::session_key(Role speaker) const {
  return code(speaker == Role::kConnects ? "the connecting side's lines" : "the accepting side's lines",
              acceptor_nonce_);
}

HashBytes Handshake::code(std::string_view label, const HashBytes& challenge) const {
  const bool connects = role_ == Role::kConnects;
  return keyed_hash(credentials_.secret,
                    fmt::format("mpzero {}: rank {} to rank {} of {}, {} {}", label,
                                connects ? credentials_.own : rank_, connects ? rank_ : credentials_.own,
                                credentials_.world_size, to_hex(connector_nonce_), to_hex(challenge)));
}

}  // namespace mpzero
