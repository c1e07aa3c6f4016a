#include "parallel/mpi/launch_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.hpp"

namespace mpzero::parallel {
namespace {

// Launcher and number of processes, according to the environment. The number is one for a shell.
struct Launch {
  enum class Program { kShell, kSrun, kMpirun, kTorchrun } program = Program::kShell;
  int tasks = 1;
  std::string task = "0";  // index of this process
};

std::optional<Launch> started_by(Launch::Program program, const Environment& environment, const char* tasks,
                                 const char* task) {
  const auto count = environment(tasks);
  if (!count) return std::nullopt;
  return Launch{.program = program, .tasks = std::atoi(count->c_str()), .task = environment(task).value_or("0")};
}

// Returns true if a launcher with PMI or PMIx support started this process or one of its ancestors.
bool has_joining_variable(const Environment& environment) {
  constexpr std::array<const char*, 3> kJoining = {"PMIX_RANK", "PMI_RANK", "PMI_FD"};
  return std::any_of(kJoining.begin(), kJoining.end(), [&](const char* name) { return environment(name).has_value(); });
}

// torchrun, `deepspeed`, `accelerate launch` and Kubernetes' PyTorchJob set RANK and WORLD_SIZE. Scripts may also
// export these variables for processes that srun starts. In this case Slurm's variables take precedence, unless
// torchrun started this process.
std::optional<Launch> started_by_torchrun(const Environment& environment) {
  if (!environment("RANK")) return std::nullopt;
  if (has_joining_variable(environment) && !environment("TORCHELASTIC_RUN_ID")) return std::nullopt;
  // Selects one process per host to print the message, because each host has separate output.
  auto launch = started_by(Launch::Program::kTorchrun, environment, "WORLD_SIZE", "LOCAL_RANK");
  if (launch && launch->tasks <= 1) return std::nullopt;
  return launch;
}

Launch find_launch(const Environment& environment) {
  using Program = Launch::Program;
  // An mpirun inside a Slurm job starts its ranks from a job step, so the ranks also inherit the step's variables.
  auto launch = started_by(Program::kMpirun, environment, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  // MPICH and Intel MPI set this variable. srun --mpi=pmi2 sets only the other two variables.
  if (!launch && environment("MPI_LOCALNRANKS")) {
    launch = started_by(Program::kMpirun, environment, "PMI_SIZE", "PMI_RANK");
  }
  if (!launch) launch = started_by_torchrun(environment);
  if (!launch) launch = started_by(Program::kSrun, environment, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
  return launch.value_or(Launch{});
}

constexpr const char* kSrunRemedy =
    "start mpzero with `srun --mpi=pmix` (`srun --mpi=list` shows the supported types), or with mpirun inside the "
    "allocation";

}  // namespace

void require_launcher(const Environment& environment) {
  const Launch launch = find_launch(environment);
  if (launch.program == Launch::Program::kTorchrun) {
    throw_user_error(
        "torchrun, deepspeed or a similar launcher started {0} processes (RANK={1}, WORLD_SIZE={0}), but mpzero "
        "requires "
        "MPI ranks; start them with `mpirun -n {0} build/bin/mpzero train …` or `srun --mpi=pmix`, or unset WORLD_SIZE "
        "to run one process",
        launch.tasks, environment("RANK").value_or(""));
  }
  if (launch.program == Launch::Program::kSrun && launch.tasks > 1 && !has_joining_variable(environment)) {
    throw_user_error("srun started {} tasks without MPI: {}", launch.tasks, kSrunRemedy);
  }
}

std::optional<LaunchProblem> find_launch_problem(const Environment& environment, int world_size,
                                                 const std::string& mpi) {
  const Launch launch = find_launch(environment);
  if (world_size > 1 || launch.tasks <= 1) return std::nullopt;
  if (launch.program == Launch::Program::kSrun) {
    return LaunchProblem{
        .message = fmt::format("srun started {} tasks, but each task is a separate MPI job (unsupported --mpi type)",
                               launch.tasks),
        .remedy = kSrunRemedy};
  }
  return LaunchProblem{.message = fmt::format("mpirun started {} ranks, but each rank is a separate MPI job: this "
                                              "mpirun does not belong to {}, the MPI of this build",
                                              launch.tasks, mpi),
                       .remedy =
                           "use the matching mpirun (see `which -a mpirun`), or rebuild mpzero with "
                           "the MPI of this mpirun"};
}

LaunchSize launch_size(const Environment& environment) {
  const Launch launch = find_launch(environment);
  LaunchSize size{.world_size = launch.tasks, .per_host = std::nullopt};
  if (const auto local = environment("OMPI_COMM_WORLD_LOCAL_SIZE")) size.per_host = std::atoi(local->c_str());
  const auto is = [&](const char* name, const char* value) {
    return environment(name).value_or("").starts_with(value);
  };
  // Variables of Slurm steps and of Open MPI 4 and 5.
  size.around_hosts =
      launch.program == Launch::Program::kSrun
          ? is("SLURM_DISTRIBUTION", "cyclic")
          : is("OMPI_MCA_rmaps_base_mapping_policy", "node") || is("PRTE_MCA_rmaps_default_mapping_policy", "node");
  return size;
}

bool is_alone_in_step(const Environment& environment) {
  const Launch launch = find_launch(environment);
  // Set by another launcher, such as flux within a step.
  const auto of_pmi = environment("PMI_SIZE");
  return launch.program == Launch::Program::kSrun && launch.tasks <= 1 && (!of_pmi || std::atoi(of_pmi->c_str()) <= 1);
}

bool is_first_task(const Environment& environment) { return find_launch(environment).task == "0"; }

}  // namespace mpzero::parallel
