#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "app/measure/stopwatch.hpp"
#include "model/operation/operation.hpp"

namespace mpzero::measure {

struct OperationTime {
  model::Operation operation;
  Timing timing;     // per call; only device time on a GPU
  double calls = 0;  // per run of the unit
};

// Time between an operation's first and last mark, and the index of the enclosing operation.
struct MarkedCall {
  double seconds = 0;
  std::optional<size_t> caller{};
};

// Returns the times of operations, excluding nested operations; at least 0. `overhead`: time between two consecutive
// marks without work between them.
std::vector<double> own_seconds(const std::vector<MarkedCall>& calls, double overhead);

// Runs a unit repeatedly and returns the times of its distinct operations, in order of their first call. Operations are
// timed within the unit, on operands computed by the unit, excluding nested operations. Before each run, reads
// `evicted_bytes` bytes of other data, because in training, other units evict the unit's data from the cache.
// Synchronizes the device. The caller must have run the unit once.
std::vector<OperationTime> operation_times(at::Device device, const Effort& effort, int64_t evicted_bytes,
                                           const std::function<void()>& unit);

}  // namespace mpzero::measure
