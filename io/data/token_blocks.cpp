#include "io/data/token_blocks.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"

namespace mpzero::io {
namespace {

static_assert(std::endian::native == std::endian::little, "checksums require little-endian tokens");

constexpr uint64_t kMaxBlockSize = 1 << 24;  // tokens

// 1048576 -> "1,048,576"
std::string shown_count(uint64_t count) {
  const std::string digits = std::to_string(count);
  std::string shown;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) shown += ',';
    shown += digits[i];
  }
  return shown;
}

}  // namespace

TokenBlocks::TokenBlocks(const hdf5::Dataset& tokens, hdf5::Dataset checksums)
    : tokens_(&tokens), checksums_(std::move(checksums)) {
  const auto fail = [&](const char* what) {
    throw_user_error("{} of {} {}", checksums_.name(), checksums_.file().string(), what);
  };
  if (checksums_.shape().size() != 1 || !checksums_.holds<uint64_t>()) fail("is not a one-dimensional uint64 dataset");
  block_size_ = checksums_.attribute<uint64_t>("block_size");
  if (block_size_ == 0 || block_size_ > kMaxBlockSize) fail("has a block_size outside of [1, 16777216]");
  if (tokens.element_size() == sizeof(uint32_t)) block_.emplace<std::vector<uint32_t>>();
  const uint64_t num_blocks = (tokens.size() + block_size_ - 1) / block_size_;
  if (checksums_.size() != num_blocks) {
    throw_user_error("{} of {} has {} checksums, but {} tokens in blocks of {} require {}", checksums_.name(),
                     checksums_.file().string(), checksums_.size(), tokens.size(), block_size_, num_blocks);
  }
}

void TokenBlocks::read(uint64_t begin, std::span<int64_t> out) {
  while (!out.empty()) {
    const uint64_t block = begin / block_size_, end = std::min((block + 1) * block_size_, tokens_->size());
    if (begin >= end) throw_failure("token {} was requested from {}, which has {} tokens", begin, tokens_->name(), end);
    load(block);
    const auto part = out.first(std::min<size_t>(out.size(), static_cast<size_t>(end - begin)));
    const auto first = static_cast<ptrdiff_t>(begin - block * block_size_);
    std::visit([&](const auto& stored) { std::copy_n(stored.begin() + first, part.size(), part.begin()); }, block_);
    begin += part.size();
    out = out.subspan(part.size());
  }
}

void TokenBlocks::load(uint64_t block) {
  if (block == loaded_) return;
  loaded_ = kNone;
  const uint64_t begin = block * block_size_, end = std::min(begin + block_size_, tokens_->size());
  uint64_t expected = 0, found = 0;
  const auto read = [&](auto& stored) {
    stored.resize(static_cast<size_t>(end - begin));
    tokens_->read_unverified(begin, std::span(stored));
    found = checksum(std::as_bytes(std::span(stored)));
  };
  try {
    std::visit(read, block_);
    checksums_.read(block, std::span(&expected, 1));
  } catch (const UserError& error) {
    throw_user_error("{} is damaged at tokens {} to {}: {}", tokens_->file().string(), shown_count(begin),
                     shown_count(end - 1), error.what());
  }
  if (found != expected) {
    throw_user_error("{} is damaged: tokens {} to {} do not match their checksum in {}", tokens_->file().string(),
                     shown_count(begin), shown_count(end - 1), checksums_.name());
  }
  loaded_ = block;
}

}  // namespace mpzero::io
