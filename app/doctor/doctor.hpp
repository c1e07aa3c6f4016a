#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "base/environment.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// `mpzero doctor FLAGS`: checks every host of the job (on the lowest rank of each), prints the findings on rank 0 and
// returns the exit code: EXIT_SUCCESS if a run should work, kFailureExitCode if a host would make it fail,
// kUserErrorExitCode if the job's own settings would. Collective.
int run_doctor(const std::vector<std::string>& arguments, parallel::MpiRuntime& mpi);

namespace doctor {

// Whether the ranks found each other: with the wrong --mpi, srun starts as many jobs of one rank each.
Finding check_launch(const parallel::Environment& environment, int world_size);

// For host `own` of `hosts`: how far its clock is from the median of all clocks. `offsets`: seconds, one for each host,
// relative to any clock. Where no more than half of the clocks agree, no host fails: none is known to be right.
Finding check_clock(size_t own, const std::vector<std::string>& hosts, const std::vector<double>& offsets);

}  // namespace doctor
}  // namespace mpzero
