#include "io/bytes/checksum.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <iterator>
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

namespace {

// zlib's lengths are 32-bit.
constexpr size_t kMaxCall = size_t{1} << 30;

}  // namespace

uint32_t crc32_of(std::span<const std::byte> bytes) {
  uLong crc = ::crc32(0, nullptr, 0);
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kMaxCall));
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    bytes = bytes.subspan(part.size());
  }
  return static_cast<uint32_t>(crc);
}

void RangeChecksums::add(int64_t begin, std::span<const std::byte> bytes) {
  add(begin, begin + static_cast<int64_t>(bytes.size()), crc32_of(bytes));
}

void RangeChecksums::add(int64_t begin, int64_t end, uint32_t crc) {
  if (end <= begin) return;
  // Merges adjacent ranges that arrive in order, which is the common case.
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->second.end == begin) {
      before->second.crc = static_cast<uint32_t>(::crc32_combine(before->second.crc, crc, end - begin));
      before->second.end = end;
      return;
    }
  }
  const auto [range, inserted] = ranges_.try_emplace(begin, Range{end, crc});
  if (!inserted && range->second.end < end) range->second = {end, crc};
}

void RangeChecksums::add(const RangeChecksums& others) {
  for (const auto& [begin, range] : others.ranges_) add(begin, range.end, range.crc);
}

uint32_t RangeChecksums::combined(int64_t size, const std::function<uint32_t(int64_t, int64_t)>& read) const {
  uLong crc = ::crc32(0, nullptr, 0);
  int64_t done = 0;
  const auto append = [&](int64_t end, uint32_t of_part) {
    crc = ::crc32_combine(crc, of_part, end - done);
    done = end;
  };
  for (const auto& [begin, range] : ranges_) {
    if (range.end <= done || range.end > size) continue;
    if (begin > done) append(begin, read(done, begin));
    append(range.end, begin == done ? range.crc : read(done, range.end));
  }
  if (done < size) append(size, read(done, size));
  return static_cast<uint32_t>(crc);
}

std::string RangeChecksums::to_text() const {
  std::string text;
  for (const auto& [begin, range] : ranges_) {
    fmt::format_to(std::back_inserter(text), "{}{} {} {}", text.empty() ? "" : " ", begin, range.end, range.crc);
  }
  return text;
}

void RangeChecksums::add_text(std::string_view text) {
  const char* position = text.data();
  const char* const stop = text.data() + text.size();
  const auto next = [&](auto& value) {
    while (position != stop && *position == ' ') ++position;
    const auto [end, error] = std::from_chars(position, stop, value);
    if (error != std::errc{}) throw std::invalid_argument("not a list of ranges");
    position = end;
  };
  while (position != stop) {
    int64_t begin = 0;
    int64_t end = 0;
    uint32_t crc = 0;
    next(begin);
    next(end);
    next(crc);
    add(begin, end, crc);
  }
}

}  // namespace mpzero::io
