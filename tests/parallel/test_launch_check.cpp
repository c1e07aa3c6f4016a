#include <map>
#include <string>

#include "base/error.hpp"
#include "parallel/launch_check.hpp"
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

TEST_CASE("Tasks that srun started without any PMI are refused before MPI starts", "[launch]") {
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

TEST_CASE("As many jobs of one rank each are refused", "[launch]") {
  const auto task = of(task_with("PMI_RANK", "3"));
  CHECK(sentence([&] { require_joined_tasks(task, 1); }).find("finds itself alone") != std::string::npos);
  CHECK_NOTHROW(require_joined_tasks(task, 8));
  CHECK_NOTHROW(require_joined_tasks(of(task_with("OMPI_COMM_WORLD_SIZE", "1")), 1));
  CHECK_NOTHROW(require_joined_tasks(of({}), 1));
}

TEST_CASE("One task speaks for all that srun started", "[launch]") {
  CHECK_FALSE(speaks_for_tasks(of(kTask)));
  CHECK(speaks_for_tasks(of(task_with("SLURM_PROCID", "0"))));
  CHECK(speaks_for_tasks(of({})));
}

}  // namespace mpzero::parallel
