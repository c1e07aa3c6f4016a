#include "tests/parallel/random_interleaving.hpp"

namespace mpzero::parallel {

TEST_CASE("random interleavings have the bits of one thing after the other, and so has every snapshot") {
  // 60 times 40 steps.
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Interleaving(seed).run();
  }
}

}  // namespace mpzero::parallel
