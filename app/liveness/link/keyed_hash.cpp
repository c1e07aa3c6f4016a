#include "app/liveness/link/keyed_hash.hpp"

#include <sodium.h>

#include "base/error.hpp"

namespace mpzero {

static_assert(sizeof(HashBytes) == crypto_auth_hmacsha512256_BYTES);
static_assert(sizeof(HashBytes) == crypto_auth_hmacsha512256_KEYBYTES);

namespace {

// libsodium requires sodium_init() before any other call.
void start_sodium() {
  static const bool started = sodium_init() >= 0;
  if (!started) throw_failure("sodium_init failed: the system does not provide random numbers");
}

}  // namespace

HashBytes random_bytes() {
  start_sodium();
  HashBytes bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

HashBytes keyed_hash(const HashBytes& key, std::string_view text, uint64_t number) {
  start_sodium();
  std::array<unsigned char, sizeof number> counted{};
  for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<unsigned char>(number >> (8 * i));
  crypto_auth_hmacsha512256_state state;
  HashBytes code{};
  crypto_auth_hmacsha512256_init(&state, key.data(), key.size());
  crypto_auth_hmacsha512256_update(&state, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  crypto_auth_hmacsha512256_update(&state, counted.data(), counted.size());
  crypto_auth_hmacsha512256_final(&state, code.data());
  return code;
}

bool same_bytes(const HashBytes& one, const HashBytes& other) {
  return sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

std::string to_hex(const HashBytes& bytes) {
  std::string digits(kHexDigits + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), bytes.data(), bytes.size());
  digits.resize(kHexDigits);
  return digits;
}

std::optional<HashBytes> from_hex(std::string_view digits) {
  HashBytes bytes{};
  if (digits.size() != kHexDigits) return std::nullopt;
  if (sodium_hex2bin(bytes.data(), bytes.size(), digits.data(), digits.size(), nullptr, nullptr, nullptr) != 0) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace mpzero
