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

// Bus bandwidth of a collective, defined as in nccl-tests: bytes per second that each rank sends or receives. The bus
// bandwidth does not depend on the number of ranks and is limited by the slowest link.
struct Measurement {
  std::string operation;  // "all-gather" or "reduce-scatter"
  int64_t bytes = 0;      // total size of the collective
  double bytes_per_second = 0;
};

// Returns the median of the seconds returned by `measure`, so that brief interference from other programs has no
// effect. Calls `measure` at least 3 times, then until the returned times total 1 s, but at most 9 times.
// `measure` must return the same value on all ranks.
double typical_seconds(const std::function<double()>& measure);

// Measures all-gather and reduce-scatter for several sizes. Returns the bandwidth of the slowest rank. Collective over
// the ranks of `communicator`. `group` must have the same ranks.
std::vector<Measurement> measure_bandwidth(parallel::Communicator& communicator, ProcessGroup& group,
                                           const at::Device& device);

// Returns a finding for `check` that compares the measurements with the specified bandwidth. `promised`: specified
// bytes per second; 0 if unknown. `promised_by`: instance type whose specification is `promised`.
Finding judge_bandwidth(Check check, const std::vector<Measurement>& measurements, double promised,
                        const std::string& promised_by);

}  // namespace mpzero::doctor
