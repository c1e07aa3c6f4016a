#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mpzero {

// A secret, a random number or the code of a text: they have one size.
using HashBytes = std::array<unsigned char, 32>;

// From the system's generator of random numbers. Throws Failure.
HashBytes random_bytes();

// The code of `text` and the number behind it, which only who knows `key` can compute: HMAC-SHA-512-256 (RFC 2104), by
// libsodium.
HashBytes keyed_hash(const HashBytes& key, std::string_view text, uint64_t number = 0);

// Takes as long wherever they differ.
bool same_bytes(const HashBytes& one, const HashBytes& other);

// 64 hexadecimal digits, and back: nothing where it is anything else.
inline constexpr size_t kHexDigits = 64;
std::string to_hex(const HashBytes& bytes);
std::optional<HashBytes> from_hex(std::string_view digits);

}  // namespace mpzero
