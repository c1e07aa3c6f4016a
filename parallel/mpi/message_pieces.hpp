#pragma once

#include <algorithm>
#include <cstdint>

namespace mpzero::parallel {

// A block of bytes in pieces of one message each.
struct MessagePieces {
  // Long enough that each costs little, and short enough that adding up one is done while others travel.
  static constexpr int64_t kMost = 256 << 10, kLeast = 32 << 10;
  // What travels to a rank at a time, if the least message allows it.
  static constexpr int64_t kUnderWay = 4 << 20;
  // Of each piece's beginning: no element of any type lies in two pieces.
  static constexpr int64_t kAlignment = 64;

  int64_t length = 0;
  int64_t count = 0;  // of the longest block

  // `peers`: the other ranks, to each of which a block goes.
  static MessagePieces of(int64_t longest_block, int peers) {
    const int64_t length = std::clamp(kUnderWay / std::max(peers, 1), kLeast, kMost) / kAlignment * kAlignment;
    return {.length = length, .count = (longest_block + length - 1) / length};
  }
  int64_t begin(int64_t piece) const { return piece * length; }
  // Of a block of that size.
  int64_t size(int64_t block, int64_t piece) const { return std::clamp<int64_t>(block - begin(piece), 0, length); }
  // How many pieces are under way to and from each peer.
  int64_t depth(int peers) const { return std::max<int64_t>(2, kUnderWay / (length * std::max(peers, 1))); }
};

}  // namespace mpzero::parallel
