#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"

namespace mpzero::parallel {

// Several tasks were started, but MPI cannot or did not join them to one job: with another --mpi than MPI was built for
// srun starts as many jobs of one rank each, and so does the mpirun of another MPI; or MPI_Init ends the process with a
// page of text. Each of them would train alone, into the same folder.

// Before MPI_Init: throws UserError, one sentence, where srun told MPI nothing, or a launcher such as torchrun, which
// never does, started more than one process (RANK, WORLD_SIZE).
void require_launcher(const Environment& environment);

struct LaunchProblem {
  std::string message, remedy;
};

// What came of MPI_Init in a process that is one of `world_size` ranks: why it is alone, though others were started
// with it. `mpi`: mpi_version().
std::optional<LaunchProblem> find_launch_problem(const Environment& environment, int world_size,
                                                 const std::string& mpi);

// Whether this process is the one that speaks for all tasks that were started, as far as is known without MPI.
bool speaks_for_tasks(const Environment& environment);

}  // namespace mpzero::parallel
