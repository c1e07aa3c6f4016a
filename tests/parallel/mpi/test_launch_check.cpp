#include <map>
#include <string>

#include "base/error.hpp"
#include "parallel/mpi/launch_check.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

Environment of(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

std::string sentence(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

const std::map<std::string, std::string> kTask = {{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "3"}};

std::map<std::string, std::string> task_with(const std::string& name, const std::string& value) {
  auto variables = kTask;
  variables[name] = value;
  return variables;
}

}  // namespace

TEST_CASE("tasks that srun started without any PMI are refused before MPI starts", "[launch]") {
  const std::string text = sentence([] { require_launcher(of(kTask)); });
  CHECK(text.find("8 tasks") != std::string::npos);
  CHECK(text.find("srun --mpi=pmix") != std::string::npos);
  CHECK_NOTHROW(require_launcher(of(task_with("PMIX_RANK", "3"))));
  CHECK_NOTHROW(require_launcher(of(task_with("PMI_RANK", "3"))));
  CHECK_NOTHROW(require_launcher(of(task_with("OMPI_COMM_WORLD_SIZE", "8"))));
  CHECK_NOTHROW(require_launcher(of(task_with("SLURM_STEP_NUM_TASKS", "1"))));
  CHECK_NOTHROW(require_launcher(of({})));
  CHECK_NOTHROW(require_launcher(of({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}})));
}

TEST_CASE("the number of started processes is read from the launcher", "[launch]") {
  CHECK(launch_size(of({})).world_size == 1);
  CHECK(launch_size(of(kTask)).world_size == 8);
  CHECK_FALSE(launch_size(of(kTask)).per_host);
  CHECK_FALSE(launch_size(of(kTask)).around_hosts);
  CHECK_FALSE(
      launch_size(of({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_MCA_rmaps_base_mapping_policy", "slot"}})).around_hosts);
  CHECK(launch_size(of({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_MCA_rmaps_base_mapping_policy", "node"}})).around_hosts);
  const LaunchSize mpirun = launch_size(of({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}));
  CHECK(mpirun.world_size == 8);
  CHECK(mpirun.per_host == 4);
}

TEST_CASE("processes started by torchrun or a similar launcher are refused before MPI starts", "[launch]") {
  const std::map<std::string, std::string> torchrun = {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "3"}};
  const auto with = [&](const std::map<std::string, std::string>& more) {
    auto variables = torchrun;
    for (const auto& [name, value] : more) variables[name] = value;
    return of(variables);
  };
  const std::string text = sentence([&] { require_launcher(of(torchrun)); });
  CHECK_THAT(text, Catch::Contains("8 processes") && Catch::Contains("RANK=3") &&
                       Catch::Contains("mpirun -n 8 build/bin/mpzero train"));
  // A pod of a PyTorchJob, which has no LOCAL_RANK; and ranks that torchrun started inside a Slurm step.
  CHECK_THROWS_AS(require_launcher(of({{"RANK", "0"}, {"WORLD_SIZE", "2"}})), UserError);
  CHECK_THROWS_AS(require_launcher(with({{"TORCHELASTIC_RUN_ID", "7"}, {"PMIX_RANK", "0"}})), UserError);

  CHECK_NOTHROW(require_launcher(with({{"WORLD_SIZE", "1"}})));
  CHECK_NOTHROW(require_launcher(with({{"WORLD_SIZE", ""}})));
  CHECK_NOTHROW(require_launcher(of({{"RANK", "0"}})));
  CHECK_NOTHROW(require_launcher(of({{"WORLD_SIZE", "16"}})));
  // In such a pod, or with variables that a script has exported, MPI's own number of ranks counts.
  CHECK_NOTHROW(require_launcher(with({{"OMPI_COMM_WORLD_SIZE", "1"}})));
  CHECK_NOTHROW(require_launcher(with({{"OMPI_COMM_WORLD_SIZE", "8"}, {"TORCHELASTIC_RUN_ID", "7"}})));
  CHECK_NOTHROW(require_launcher(with({{"PMI_SIZE", "8"}, {"PMI_RANK", "3"}, {"MPI_LOCALNRANKS", "8"}})));
  CHECK_NOTHROW(require_launcher(with({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "3"}, {"PMIX_RANK", "3"}})));
  CHECK_FALSE(find_launch_problem(with({{"OMPI_COMM_WORLD_SIZE", "1"}}), 1, "Open MPI v4.1.4").has_value());

  CHECK_FALSE(is_first_task(of(torchrun)));
  CHECK(is_first_task(with({{"LOCAL_RANK", "0"}})));
  CHECK(is_first_task(of({{"RANK", "1"}, {"WORLD_SIZE", "2"}})));
}

TEST_CASE("single-rank jobs for each started process are refused", "[launch]") {
  const auto message = [](const std::map<std::string, std::string>& variables, int world_size) {
    const auto problem = find_launch_problem(of(variables), world_size, "Open MPI v4.1.4");
    return problem ? problem->message + "; " + problem->remedy : std::string();
  };
  const auto task = task_with("PMI_RANK", "3");
  CHECK_THAT(message(task, 1), Catch::Contains("srun started 8 tasks") && Catch::Contains("srun --mpi=list"));
  CHECK(message(task, 8).empty());
  CHECK(message({}, 1).empty());

  const std::map<std::string, std::string> of_mpich = {{"PMI_SIZE", "4"},
                                                       {"PMI_RANK", "1"},
                                                       {"MPI_LOCALNRANKS", "2"},
                                                       {"SLURM_STEP_NUM_TASKS", "2"},
                                                       {"SLURM_PROCID", "0"}};
  CHECK_THAT(message(of_mpich, 1),
             Catch::Contains("mpirun started 4 ranks") && Catch::Contains("does not belong to Open MPI v4.1.4"));
  CHECK(message(of_mpich, 4).empty());
  CHECK_THAT(message(task_with("OMPI_COMM_WORLD_SIZE", "2"), 1), Catch::Contains("mpirun started 2 ranks"));
  CHECK(message(task_with("OMPI_COMM_WORLD_SIZE", "1"), 1).empty());
}

TEST_CASE("one task prints messages for all tasks that srun started", "[launch]") {
  CHECK_FALSE(is_first_task(of(kTask)));
  CHECK(is_first_task(of(task_with("SLURM_PROCID", "0"))));
  CHECK(is_first_task(of({})));
  CHECK_FALSE(is_first_task(of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}})));
  CHECK_FALSE(is_first_task(of({{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "4"}})));
  CHECK(is_first_task(of({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}, {"MPI_LOCALNRANKS", "4"}})));
}

}  // namespace mpzero::parallel
