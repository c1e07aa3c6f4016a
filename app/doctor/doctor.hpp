#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "base/environment.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// Implements `mpzero doctor`: runs the checks of each host on the host's lowest rank, and prints the findings on rank
// 0. Returns EXIT_SUCCESS if a run should work, kFailureExitCode if a run would fail because of a host, and
// kUserErrorExitCode if a run would fail because of the job's settings. Collective.
int run_doctor(const std::vector<std::string>& arguments, parallel::MpiRuntime& mpi);

namespace doctor {

// Checks that all ranks are in one MPI job: with the wrong --mpi option, srun starts each rank as a separate job.
Finding check_launch(const parallel::Environment& environment, int world_size);

// Compares the clock of host `own` with the median of all clocks. `offsets`: one per host, in seconds, relative to any
// common clock. If no majority of hosts agrees on the time, returns only a warning because the correct time is unknown.
Finding check_clock(size_t own, const std::vector<std::string>& hosts, const std::vector<double>& offsets);

}  // namespace doctor
}  // namespace mpzero
