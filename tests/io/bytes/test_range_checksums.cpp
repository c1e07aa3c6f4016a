#include <stdexcept>
#include <string>
#include <vector>

#include "io/bytes/checksum.hpp"
#include "tests/catch.hpp"

namespace mpzero::io {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

const std::string kText = "The quick brown fox jumps over the lazy dog";

std::span<const std::byte> bytes(int64_t begin, int64_t end) {
  return std::as_bytes(std::span(kText)).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

void add(RangeChecksums& sums, const Ranges& ranges) {
  for (const auto& [begin, end] : ranges) sums.add(begin, bytes(begin, end));
}

// What had to be read again for the checksum of the text, which must be right.
Ranges read_again(const RangeChecksums& sums) {
  Ranges read;
  const uint32_t crc = sums.combined(static_cast<int64_t>(kText.size()), [&](int64_t begin, int64_t end) {
    read.emplace_back(begin, end);
    return crc32_of(bytes(begin, end));
  });
  CHECK(crc == crc32_of(bytes(0, static_cast<int64_t>(kText.size()))));
  return read;
}

Ranges read_again(const Ranges& ranges) {
  RangeChecksums sums;
  add(sums, ranges);
  return read_again(sums);
}

}  // namespace

// Oracle: the check value of CRC-32/ISO-HDLC for this sentence.
TEST_CASE("crc32_of is the CRC-32 of ZIP archives") {
  CHECK(crc32_of(std::as_bytes(std::span(kText))) == 0x414fa339);
  CHECK(crc32_of({}) == 0);
}

TEST_CASE("ranges in any order give the checksum of all bytes") {
  REQUIRE(kText.size() == 43);
  CHECK(read_again({{0, 43}}).empty());
  CHECK(read_again({{0, 10}, {10, 20}, {20, 43}}).empty());
  CHECK(read_again({{20, 43}, {0, 10}, {10, 20}}).empty());
  CHECK(read_again({{0, 10}, {0, 10}, {0, 43}}).empty());
}

TEST_CASE("bytes that no range covers are read") {
  CHECK(read_again(Ranges{}) == Ranges{{0, 43}});
  CHECK(read_again({{5, 10}, {12, 40}}) == Ranges{{0, 5}, {10, 12}, {40, 43}});
  // Ranges that overlap: the second one's rest.
  CHECK(read_again({{0, 20}, {10, 43}}) == Ranges{{20, 43}});
  // Nothing of them is used: one within another, and one beyond the end.
  RangeChecksums sums;
  add(sums, {{0, 43}, {3, 9}});
  sums.add(41, 50, 1234);
  CHECK(read_again(sums).empty());
}

TEST_CASE("an empty range is ignored") {
  RangeChecksums sums;
  sums.add(5, {});
  CHECK(sums.empty());
  CHECK(sums.to_text().empty());
}

TEST_CASE("ranges of other processes are passed as text") {
  RangeChecksums theirs;
  add(theirs, {{0, 20}, {30, 43}});
  RangeChecksums mine;
  mine.add_text(theirs.to_text());
  CHECK(mine.to_text() == theirs.to_text());
  add(mine, {{20, 30}});
  CHECK(read_again(mine).empty());
  RangeChecksums all;
  all.add(mine);
  CHECK(read_again(all).empty());
  for (const char* text : {"1", "1 2", "1 2 x", "a b c", "1 2 -3", "1 2 3 4"}) {
    INFO(text);
    CHECK_THROWS_AS(RangeChecksums().add_text(text), std::invalid_argument);
  }
}

}  // namespace mpzero::io
