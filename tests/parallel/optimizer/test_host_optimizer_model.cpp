#include "tests/parallel/random_interleaving.hpp"

namespace mpzero::parallel {

TEST_CASE("random interleavings and all snapshots are bitwise equal to sequential execution") {
  // 60 times 40 steps.
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Interleaving(seed).run();
  }
}

}  // namespace mpzero::parallel
