#include "parallel/mpi/transfers.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {

TEST_CASE("pieces begin between elements and cover the block, for any number of ranks") {
  constexpr int64_t kLargestElement = 8;
  for (int ranks = 2; ranks <= 4096; ++ranks) {
    for (const int64_t block : {int64_t{1}, int64_t{8}, int64_t{32768}, int64_t{800'000}, int64_t{5'000'008}}) {
      const MessagePieces pieces = MessagePieces::of(block, ranks - 1);
      REQUIRE(pieces.length % kLargestElement == 0);
      REQUIRE(pieces.length >= MessagePieces::kLeast);
      REQUIRE(pieces.length <= MessagePieces::kMost);
      REQUIRE(pieces.depth(ranks - 1) >= 2);
      int64_t sum = 0;
      for (int64_t piece = 0; piece < pieces.count; ++piece) {
        REQUIRE(pieces.begin(piece) == sum);
        sum += pieces.size(block, piece);
      }
      REQUIRE(sum == block);
      REQUIRE(pieces.size(block, pieces.count) == 0);
    }
  }
}

}  // namespace mpzero::parallel
