#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/instances.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::doctor {

// The speed of a collective of `bytes` in total, as bus bandwidth like in NCCL's tests: what each rank sends, or
// receives, per second. It does not depend on the number of ranks, and is limited by the slowest link.
struct Measurement {
  std::string operation;  // "all-gather", "reduce-scatter"
  int64_t bytes = 0;
  double bytes_per_second = 0;
};

// The median of what `measure` returns in seconds, called three to nine times, until a second is full. What another
// program takes for a moment is no property of the network. Every rank must get the same seconds.
double typical_seconds(const std::function<double()>& measure);

// Measures both operations for several sizes. Collective over the ranks of `communicator`; `group` has the same ranks.
// The slowest rank counts.
std::vector<Measurement> measure_bandwidth(parallel::Communicator& communicator, ProcessGroup& group,
                                           const at::Device& device);

// One finding for `check`: the measurements, compared with `promised` bytes per second; 0: nothing is promised.
Finding judge_bandwidth(Check check, const std::vector<Measurement>& measurements, double promised,
                        const std::string& promised_by);

}  // namespace mpzero::doctor
