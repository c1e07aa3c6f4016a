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

// Bus bandwidth of a collective of `bytes` in total, as in nccl-tests: bytes that each rank sends, or receives, per
// second. Independent of the number of ranks; limited by the slowest link.
struct Measurement {
  std::string operation;  // "all-gather", "reduce-scatter"
  int64_t bytes = 0;
  double bytes_per_second = 0;
};

// Median of the seconds that `measure` returns. Calls it 3 to 9 times, until they sum up to a second, so that short
// disturbances by other programs do not count. Every rank must get the same seconds.
double typical_seconds(const std::function<double()>& measure);

// Measures both operations for several sizes. Collective over the ranks of `communicator`; `group` has the same ranks.
// The slowest rank counts.
std::vector<Measurement> measure_bandwidth(parallel::Communicator& communicator, ProcessGroup& group,
                                           const at::Device& device);

// One finding for `check`: the measurements, compared with the specified bytes per second, `promised`; 0: none
// specified.
Finding judge_bandwidth(Check check, const std::vector<Measurement>& measurements, double promised,
                        const std::string& promised_by);

}  // namespace mpzero::doctor
