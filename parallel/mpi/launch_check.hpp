#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"

namespace mpzero::parallel {

// Detects tasks that MPI does not join into one job. With an --mpi that MPI does not support, srun starts one job of
// one rank per task, as does the mpirun of another MPI; or MPI_Init ends the process with a page of text. Each task
// would train alone, into the same folder.

// Call before MPI_Init. Throws UserError, one sentence, if srun passed MPI no information, or if a launcher that never
// does, such as torchrun, started more than one process (RANK, WORLD_SIZE).
void require_launcher(const Environment& environment);

struct LaunchProblem {
  std::string message, remedy;
};

// Call after MPI_Init, with its `world_size`: the reason why this process is alone although others were started with
// it. `mpi`: mpi_version().
std::optional<LaunchProblem> find_launch_problem(const Environment& environment, int world_size,
                                                 const std::string& mpi);

// The number of started processes, as far as known without MPI.
struct LaunchSize {
  int world_size = 1;
  std::optional<int> per_host;  // known only for mpirun
  bool around_hosts = false;    // consecutive ranks are on different hosts: mpirun --map-by node, srun -m cyclic
};
LaunchSize launch_size(const Environment& environment);

// Whether this process is in an srun step with one task, so that it trains alone.
bool is_alone_in_step(const Environment& environment);

// Whether this process is the one that prints messages for all started tasks, as far as known without MPI.
bool is_first_task(const Environment& environment);

}  // namespace mpzero::parallel
