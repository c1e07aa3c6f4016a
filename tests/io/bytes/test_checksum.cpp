#include <stdexcept>
#include <string>

#include "io/bytes/checksum.hpp"
#include "tests/catch.hpp"

namespace mpzero::io {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

// Oracle: xxhsum -H3 of xxHash 0.8.
TEST_CASE("checksums are 64-bit XXH3 hashes") {
  CHECK(checksum({}) == 0x2d06800538d394c2);
  CHECK(checksum(bytes_of("abc")) == 0x78af5f94892f3950);
}

TEST_CASE("an incremental checksum equals the checksum of all bytes") {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i);
  for (const size_t piece : {size_t{1}, size_t{255}, size_t{1024}, text.size()}) {
    StreamingChecksum streaming;
    for (size_t begin = 0; begin < text.size(); begin += piece) streaming.add(bytes_of(text.substr(begin, piece)));
    CHECK(streaming.value() == checksum(bytes_of(text)));
  }
  CHECK(StreamingChecksum().value() == checksum({}));
}

TEST_CASE("checksums are written as 16 hexadecimal digits, and other text is rejected") {
  CHECK(to_hex(0xabc) == "0000000000000abc");
  for (const uint64_t value : {uint64_t{0}, uint64_t{0xabc}, ~uint64_t{0}}) CHECK(from_hex(to_hex(value)) == value);
  for (const char* text : {"", "abc", "0000000000000abg", "0x00000000000abc", "-000000000000abc", " 000000000000abc",
                           "0000000000000abc0"}) {
    INFO(text);
    CHECK_THROWS_AS(from_hex(text), std::invalid_argument);
  }
}

}  // namespace mpzero::io
