#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"

namespace mpzero::parallel {

// Detects tasks that MPI does not join into one job. If MPI does not support srun's --mpi type, or mpirun belongs to
// another MPI library, each task becomes a job of one rank, or MPI_Init ends the process with a long message. Each task
// would then train separately and write to the same folder.

// Throws UserError if srun passed no information to MPI, or if a launcher without MPI support, such as torchrun,
// started more than one process (RANK, WORLD_SIZE). Must be called before MPI_Init.
void require_launcher(const Environment& environment);

struct LaunchProblem {
  std::string message, remedy;
};

// Returns a description of the problem if the launcher started several processes but MPI did not join this process to
// the others; otherwise, returns std::nullopt. Must be called after MPI_Init, with MPI's world size. `mpi`:
// mpi_version().
std::optional<LaunchProblem> find_launch_problem(const Environment& environment, int world_size,
                                                 const std::string& mpi);

// Number of processes that the launcher has started, as far as can be determined without MPI.
struct LaunchSize {
  int world_size = 1;
  std::optional<int> per_host;  // known only for mpirun
  bool around_hosts = false;    // consecutive ranks are on different hosts: mpirun --map-by node, srun -m cyclic
};
LaunchSize launch_size(const Environment& environment);

// Returns true if this process runs in an srun step with one task and therefore trains alone.
bool is_alone_in_step(const Environment& environment);

// Returns true if this process prints messages for all started tasks, as far as can be determined without MPI.
bool is_first_task(const Environment& environment);

}  // namespace mpzero::parallel
