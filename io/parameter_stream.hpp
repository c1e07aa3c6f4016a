#pragma once

#include <cstdint>
#include <span>

#include "base/parameter_source.hpp"
#include "io/atomic_file.hpp"
#include "io/safetensors.hpp"

namespace mpzero::io {

// Where a parameter's fp32 values go.
struct Destination {
  const ParameterSpec* parameter = nullptr;
  File* file = nullptr;
  int64_t offset = 0;
};

// Copies every parameter from `source` to its place in pieces of 4 MiB, several threads at once, whatever the sizes of
// the parameters. Does not sync.
void stream_parameters(std::span<const Destination> destinations, const ParameterSource& source,
                       const OnWritten& on_written);

}  // namespace mpzero::io
