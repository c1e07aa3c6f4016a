#include "io/bytes/checksum.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <stdexcept>

namespace mpzero::io {

uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct StreamingChecksum::State {
  XXH3_state_t value;
};

StreamingChecksum::StreamingChecksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->value); }
StreamingChecksum::~StreamingChecksum() = default;

void StreamingChecksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->value, bytes.data(), bytes.size());
}

uint64_t StreamingChecksum::value() const { return XXH3_64bits_digest(&state_->value); }

std::string to_hex(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

uint64_t from_hex(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != 16 || error != std::errc{} || end != digits.data() + digits.size()) {
    throw std::invalid_argument("not a checksum: " + std::string(digits));
  }
  return value;
}

}  // namespace mpzero::io
