#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/parameter_source.hpp"
#include "base/parameter_spec.hpp"
#include "io/bytes/checksum.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {

// Called from time to time, from one thread at a time, with the number of bytes written so far and in total.
using OnWritten = std::function<void(int64_t done, int64_t total)>;

// Where a parameter's values are written.
struct Destination {
  const ParameterSpec* parameter = nullptr;
  File* file = nullptr;
  int64_t offset = 0;
  RangeChecksums* checksums = nullptr;  // receives the checksums of the bytes; may be null
};

// Copies every parameter from `source` to its destination in pieces of 4 MiB of fp32, from several threads, regardless
// of the sizes of the parameters. Does not sync.
void stream_parameters(std::span<const Destination> destinations, const ParameterSource& source, WeightType type,
                       const OnWritten& on_written);

// Consecutive parameters share a shard as long as they fit. A larger parameter gets its own shard. Returns at least one
// shard.
std::vector<std::span<const ParameterSpec>> split_into_shards(std::span<const ParameterSpec> parameters,
                                                              int64_t max_shard_bytes, WeightType type);

}  // namespace mpzero::io
