#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"

namespace mpzero::parallel {

// Several tasks were started, but MPI cannot join them into one job, or did not. With an --mpi for which MPI was not
// built, srun starts as many jobs of one rank each, and so does the mpirun of another MPI; or MPI_Init ends the process
// with a page of text. Each task would train alone, into the same folder.

// Before MPI_Init: throws UserError, one sentence, if srun gave MPI no information, or if a launcher that never does,
// such as torchrun, started more than one process (RANK, WORLD_SIZE).
void require_launcher(const Environment& environment);

struct LaunchProblem {
  std::string message, remedy;
};

// After MPI_Init, in a process that is one of `world_size` ranks: why it is alone although other processes were started
// with it. `mpi`: mpi_version().
std::optional<LaunchProblem> find_launch_problem(const Environment& environment, int world_size,
                                                 const std::string& mpi);

// How many processes were started, as far as is known without MPI.
struct LaunchSize {
  int world_size = 1;
  std::optional<int> per_host;  // known of mpirun's
  bool around_hosts = false;    // one rank after another on the next host: mpirun --map-by node, srun -m cyclic
};
LaunchSize launch_size(const Environment& environment);

// Whether this process is in a step of srun that has one task, as which it trains alone.
bool is_alone_in_step(const Environment& environment);

// Whether this process is the one that prints messages for all started tasks, as far as is known without MPI.
bool is_first_task(const Environment& environment);

}  // namespace mpzero::parallel
