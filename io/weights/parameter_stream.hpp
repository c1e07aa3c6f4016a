#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/parameter_source.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/bytes/range_checksums.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {

// Told now and then, from one thread at a time, how many bytes of how many have been written.
using OnWritten = std::function<void(int64_t done, int64_t total)>;

// Where a parameter's values go.
struct Destination {
  const ParameterSpec* parameter = nullptr;
  File* file = nullptr;
  int64_t offset = 0;
  RangeChecksums* checksums = nullptr;  // gets those of the bytes, from the parameter's first on, if it is there
};

// Copies every parameter from `source` to its place in pieces of 4 MiB of fp32, several threads at once, whatever the
// sizes of the parameters. Does not sync.
void stream_parameters(std::span<const Destination> destinations, const ParameterSource& source, WeightType type,
                       const OnWritten& on_written);

}  // namespace mpzero::io
