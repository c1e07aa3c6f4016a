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

// Checks that the ranks found each other: with the wrong --mpi, srun starts as many jobs of one rank each.
Finding check_launch(const parallel::Environment& environment, int world_size);

// Compares the clock of host `own` with the median of all clocks. `offsets`: seconds, one per host, relative to any
// clock. If no majority of the clocks agrees, no host fails: the correct time is unknown.
Finding check_clock(size_t own, const std::vector<std::string>& hosts, const std::vector<double>& offsets);

}  // namespace doctor
}  // namespace mpzero
