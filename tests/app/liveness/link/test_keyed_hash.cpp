#include <set>

#include "app/liveness/link/keyed_hash.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

HashBytes counting() {
  HashBytes bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  return bytes;
}

}  // namespace

TEST_CASE("The code is HMAC-SHA-512, cut to 32 bytes, of the text followed by the number") {
  // Python: hmac.new(bytes(range(32)), b"a line" + struct.pack("<Q", 258), "sha512").digest()[:32].hex()
  CHECK(to_hex(keyed_hash(counting(), "a line", 258)) ==
        "e7ac0db32ba150b4eb46164bf48ff6e6ca92ff04a4f31d9779c2bbc6cd803a6c");
  CHECK(to_hex(keyed_hash(counting(), "")) == "21b01e395575475f05e4c36bdb76276a57beac8ed9ec5faa6bd645f2e30a2e72");
}

TEST_CASE("Codes are equal if all bytes are") {
  HashBytes other = counting();
  CHECK(same_bytes(counting(), other));
  other.back() ^= 1;
  CHECK_FALSE(same_bytes(counting(), other));
}

TEST_CASE("Only hexadecimal digits are converted back to bytes") {
  const std::string digits = to_hex(counting());
  CHECK(digits.substr(0, 8) == "00010203");
  CHECK(from_hex(digits) == counting());
  CHECK_FALSE(from_hex(digits + "0"));
  CHECK_FALSE(from_hex(digits.substr(1)));
  CHECK_FALSE(from_hex(""));
  CHECK_FALSE(from_hex(std::string(kHexDigits, 'g')));
  CHECK_FALSE(from_hex(std::string(kHexDigits - 1, '0') + " "));
}

TEST_CASE("Random bytes do not repeat") {
  std::set<HashBytes> seen;
  for (int i = 0; i < 100; ++i) seen.insert(random_bytes());
  CHECK(seen.size() == 100);
}

}  // namespace mpzero
