#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mpzero {

// A secret, a random number or the code of a text: all have the same size.
using HashBytes = std::array<unsigned char, 32>;

// From the system's random number generator. Throws Failure.
HashBytes random_bytes();

// The code of `text` followed by `number`, which can only be computed with `key`: HMAC-SHA-512-256 (RFC 2104), by
// libsodium.
HashBytes keyed_hash(const HashBytes& key, std::string_view text, uint64_t number = 0);

// Compares in constant time.
bool same_bytes(const HashBytes& one, const HashBytes& other);

// Converts to 64 hexadecimal digits and back; std::nullopt for anything else.
inline constexpr size_t kHexDigits = 64;
std::string to_hex(const HashBytes& bytes);
std::optional<HashBytes> from_hex(std::string_view digits);

}  // namespace mpzero
