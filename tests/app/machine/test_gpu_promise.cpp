#include <map>

#include "app/machine/gpu_promise.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

parallel::Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

TEST_CASE("GPUs assigned by Slurm are those of the step, or of the job outside of a step") {
  const auto given = [](std::map<std::string, std::string> variables) {
    return given_gpus(environment(std::move(variables))).count;
  };
  CHECK(given({{"SLURM_JOB_GPUS", "0,1"}}) == 2);
  CHECK(given({{"SLURM_GPUS_PER_NODE", "h100:8"}}) == 8);
  CHECK(given({{"SLURM_GPUS_PER_NODE", "a100:2,h100:6"}}) == 8);
  CHECK(given({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_GPUS", "0,1,2"}}) == 3);
  // `srun` without --gpus-per-node in a job with GPUs: the step inherits the job's variables, and gets no GPU.
  CHECK(given({{"SLURM_STEP_ID", "0"}, {"SLURM_JOB_GPUS", "0,1"}, {"SLURM_GPUS_PER_NODE", "2"}}) == 0);
  CHECK(given({{"SLURM_GPUS_ON_NODE", "none"}}) == 0);
  const GivenGpus of_slurm = given_gpus(environment({{"SLURM_GPUS_ON_NODE", "2"}, {"MPZERO_GPUS", "8"}}));
  CHECK((of_slurm.count == 2 && of_slurm.by == "Slurm" && of_slurm.where == "SLURM_GPUS_ON_NODE"));
  CHECK(listed_gpus(environment({})) == std::nullopt);
  const auto listed = [](const char* list) { return *listed_gpus(environment({{"CUDA_VISIBLE_DEVICES", list}})); };
  CHECK((listed("") == 0 && listed("-1") == 0 && listed("NoDevFiles") == 0));
  CHECK((listed("0,1,2") == 3 && listed("MIG-ab,MIG-cd") == 1));
}

TEST_CASE("GPUs requested by a TrainJob are assigned by Kubernetes") {
  const GivenGpus given = given_gpus(environment({{"MPZERO_GPUS", "4"}}));
  CHECK((given.count == 4 && given.by == "Kubernetes" && given.where == "MPZERO_GPUS"));
  for (const char* none : {"0", ""}) CHECK(given_gpus(environment({{"MPZERO_GPUS", none}})).count == 0);
  CHECK(given_gpus(environment({{"SLURM_JOB_ID", "17"}, {"MPZERO_GPUS", "4"}})).count == 0);
}

}  // namespace mpzero
