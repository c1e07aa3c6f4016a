#include "parallel/launch_check.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace mpzero::parallel {
namespace {

// Tasks of the srun that started this process itself; 1 where mpirun or a shell did.
int tasks_of_srun(const Environment& environment) {
  const auto tasks = environment("SLURM_STEP_NUM_TASKS");
  const bool by_srun = tasks && environment("SLURM_PROCID") && !environment("OMPI_COMM_WORLD_SIZE");
  return by_srun ? std::atoi(tasks->c_str()) : 1;
}

constexpr const char* kRemedy =
    "start it with `srun --mpi=pmix` (`srun --mpi=list` shows what this Slurm can), or with mpirun inside the "
    "allocation";

}  // namespace

void require_launcher(const Environment& environment) {
  const int tasks = tasks_of_srun(environment);
  constexpr std::array<const char*, 3> kJoining = {"PMIX_RANK", "PMI_RANK", "PMI_FD"};
  const bool joined =
      std::any_of(kJoining.begin(), kJoining.end(), [&](const char* name) { return environment(name).has_value(); });
  if (tasks > 1 && !joined) {
    throw_user_error("srun started {} tasks without telling MPI that they belong together: {}", tasks, kRemedy);
  }
}

void require_joined_tasks(const Environment& environment, int world_size) {
  const int tasks = tasks_of_srun(environment);
  if (tasks > 1 && world_size == 1) {
    throw_user_error("srun started {} tasks, but each of them finds itself alone (this MPI knows no such --mpi): {}",
                     tasks, kRemedy);
  }
}

bool speaks_for_tasks(const Environment& environment) {
  return tasks_of_srun(environment) <= 1 || environment("SLURM_PROCID") == "0";
}

}  // namespace mpzero::parallel
