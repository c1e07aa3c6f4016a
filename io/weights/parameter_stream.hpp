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

// Progress callback with the number of bytes written so far and in total. Never called concurrently.
using OnWritten = std::function<void(int64_t done, int64_t total)>;

// File and offset to write a parameter to.
struct Destination {
  const ParameterSpec* parameter = nullptr;
  File* file = nullptr;
  int64_t offset = 0;
  RangeChecksums* checksums = nullptr;  // receives the CRC-32 of the written ranges; may be null
};

// Copies parameters from `source` to their destinations. Several threads copy 4 MiB chunks of fp32 data, so that a
// single large parameter is also copied in parallel. Does not sync the files.
void stream_parameters(std::span<const Destination> destinations, const ParameterSource& source, WeightType type,
                       const OnWritten& on_written);

// Splits parameters into shards of consecutive parameters. A parameter larger than `max_shard_bytes` is a separate
// shard. Returns at least one shard.
std::vector<std::span<const ParameterSpec>> split_into_shards(std::span<const ParameterSpec> parameters,
                                                              int64_t max_shard_bytes, WeightType type);

}  // namespace mpzero::io
