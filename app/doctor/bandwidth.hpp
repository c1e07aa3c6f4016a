#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/instances.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::doctor {

// How fast a collective of `bytes` in all was. Bus bandwidth, as in NCCL's tests: what each rank sends, or receives, a
// second; a value that does not depend on the number of ranks, and that the slowest link bounds.
struct Measurement {
  std::string operation;  // "all-gather", "reduce-scatter"
  int64_t bytes = 0;
  double bytes_per_second = 0;
};

// Measures both operations by size. Collective over the ranks of `communicator`; the slowest of them counts, for which
// `group` has the same ranks.
std::vector<Measurement> measure_bandwidth(parallel::Communicator& communicator, ProcessGroup& group,
                                           const at::Device& device);

// One finding for `where` ("between nodes", "inside the node"): the measurements, compared with `promised` bytes a
// second; 0: nothing is promised.
Finding judge_bandwidth(const std::string& check, const std::vector<Measurement>& measurements, double promised,
                        const std::string& promised_by);

}  // namespace mpzero::doctor
