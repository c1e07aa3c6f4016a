#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/parameter_spec.hpp"
#include "io/bytes/float_formats.hpp"

namespace mpzero::io {

// Consecutive parameters share a shard as long as they fit. A larger parameter gets its own shard. Returns at least one
// shard.
inline std::vector<std::span<const ParameterSpec>> split_into_shards(std::span<const ParameterSpec> parameters,
                                                                     int64_t max_shard_bytes, WeightType type) {
  std::vector<std::span<const ParameterSpec>> shards;
  size_t begin = 0;
  int64_t size = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t bytes = parameters[i].numel() * bytes_of(type);
    if (i > begin && size + bytes > max_shard_bytes) {
      shards.push_back(parameters.subspan(begin, i - begin));
      begin = i;
      size = 0;
    }
    size += bytes;
  }
  shards.push_back(parameters.subspan(begin));
  return shards;
}

}  // namespace mpzero::io
