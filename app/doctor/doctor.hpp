#pragma once

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

// How far the clock of a host is ahead of the first host's, in seconds.
Finding check_clock(double offset);

}  // namespace doctor
}  // namespace mpzero
