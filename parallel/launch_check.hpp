#pragma once

#include "parallel/environment.hpp"

namespace mpzero::parallel {

// Slurm started several tasks, but MPI cannot or did not join them to one job: with another --mpi than MPI was built
// for, srun starts as many jobs of one rank each, or MPI_Init ends the process with a page of text. Both functions
// throw UserError, one sentence. The first looks before MPI_Init, the second at what came of it.
void require_launcher(const Environment& environment);
void require_joined_tasks(const Environment& environment, int world_size);

// Whether this process is the one that speaks for all tasks that srun started, as far as is known without MPI.
bool speaks_for_tasks(const Environment& environment);

}  // namespace mpzero::parallel
