#include "io/checkpoint/checkpoint.hpp"

namespace mpzero::io {

std::vector<UnitSpec> units_of(std::span<const UnitShard> shards) {
  std::vector<UnitSpec> units;
  units.reserve(shards.size());
  for (const UnitShard& shard : shards) units.push_back(*shard.unit);
  return units;
}

}  // namespace mpzero::io
