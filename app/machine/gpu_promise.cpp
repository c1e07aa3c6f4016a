#include "app/machine/gpu_promise.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

namespace mpzero {
namespace {

// Returns the number of words in a comma-separated list.
int count_words(std::string_view list) {
  if (list.empty()) return 0;
  return 1 + static_cast<int>(std::count(list.begin(), list.end(), ','));
}

// Returns the sum of the numbers in "8", "h100:8" or "a100:2,h100:6".
int sum_of_types(std::string_view list) {
  int sum = 0;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), word.size() + 1));
    const std::string_view digits = word.substr(word.rfind(':') + 1);
    int count = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), count);
    sum += std::max(0, count);
  }
  return sum;
}

int gpus_from_slurm(const parallel::Environment& environment) {
  const auto on_node = environment("SLURM_GPUS_ON_NODE");
  if (on_node && !on_node->empty()) return sum_of_types(*on_node);
  if (const auto of_step = environment("SLURM_STEP_GPUS")) return count_words(*of_step);
  // A step without GPUs inherits the environment variables for the GPUs of the job.
  if (environment("SLURM_STEP_ID")) return 0;
  if (const auto of_job = environment("SLURM_JOB_GPUS")) return count_words(*of_job);
  return sum_of_types(environment("SLURM_GPUS_PER_NODE").value_or(""));
}

}  // namespace

GivenGpus given_gpus(const parallel::Environment& environment) {
  const int of_slurm = gpus_from_slurm(environment);
  if (of_slurm > 0 || environment("SLURM_JOB_ID")) return {of_slurm, "Slurm", "SLURM_GPUS_ON_NODE"};
  const int of_pod = sum_of_types(environment("MPZERO_GPUS").value_or(""));
  return of_pod > 0 ? GivenGpus{of_pod, "Kubernetes", "MPZERO_GPUS"} : GivenGpus{};
}

std::optional<int> listed_gpus(const parallel::Environment& environment) {
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  if (!visible) return std::nullopt;
  // Slurm sets NoDevFiles for a step without GPUs. CUDA ignores all entries after -1 or any other invalid entry.
  if (visible->rfind("NoDevFiles", 0) == 0 || visible->rfind("-1", 0) == 0) return 0;
  // A process can use only the first MIG instance in the list.
  if (visible->rfind("MIG-", 0) == 0) return 1;
  return count_words(*visible);
}

}  // namespace mpzero
