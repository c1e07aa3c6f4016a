#include <ATen/ops/arange.h>

#include "parallel/zero/flat_unit.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {

TEST_CASE("shards are equal and aligned, and cover the unit once") {
  for (const int64_t numel : {1, 63, 64, 65, 1000, 4096}) {
    for (const int num_shards : {1, 2, 3, 4, 7, 16}) {
      const FlatLayout layout(numel, num_shards);
      REQUIRE(layout.padded_numel() == layout.shard_numel() * num_shards);
      REQUIRE(layout.padded_numel() >= numel);
      REQUIRE(layout.shard_numel() % 64 == 0);
      int64_t used = 0;
      for (int shard = 0; shard < num_shards; ++shard) {
        REQUIRE(layout.shard_used(shard) >= 0);
        REQUIRE(layout.shard_used(shard) <= layout.shard_numel());
        // A shard is filled from its start, and only after the previous shards are full.
        if (layout.shard_used(shard) > 0) REQUIRE(layout.shard_begin(shard) == used);
        used += layout.shard_used(shard);
      }
      REQUIRE(used == numel);
    }
  }
}

TEST_CASE("parameter views are contiguous in the flat buffer") {
  const UnitSpec unit{.name = "u", .parameters = {{"a", {2, 3}}, {"b", {4}}, {"c", {1, 1, 5}}}};
  const at::Tensor flat = at::arange(20, at::kFloat);
  const std::vector<at::Tensor> views = parameter_views(flat, unit);
  REQUIRE(views.size() == 3);
  REQUIRE(views[0].sizes() == at::IntArrayRef({2, 3}));
  REQUIRE(views[2].sizes() == at::IntArrayRef({1, 1, 5}));
  REQUIRE(views[0][1][2].item<float>() == 5);
  REQUIRE(views[1][0].item<float>() == 6);
  REQUIRE(views[2].flatten()[4].item<float>() == 14);
  views[1].fill_(-1);
  REQUIRE(flat[9].item<float>() == -1);
  REQUIRE(flat[10].item<float>() == 10);
}

}  // namespace mpzero::parallel
