#include <map>

#include "app/machine/device_choice.hpp"
#include "base/error.hpp"
#include "parallel/comm/gpu_address.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

const std::string kA = "0000:10:1c.0", kB = "0000:10:1d.0", kC = "0000:20:1c.0", kD = "0000:20:1d.0";

std::vector<int> choices(const GpuViews& views) {
  std::vector<int> chosen;
  for (int rank = 0; rank < static_cast<int>(views.size()); ++rank) chosen.push_back(choose_gpu(views, rank, "node7"));
  return chosen;
}

parallel::Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

TEST_CASE("Ranks that see the same GPUs take one each, by their local rank") {
  CHECK(choices({{kA}}) == std::vector<int>{0});
  CHECK(choices({{kA, kB}}) == std::vector<int>{0});
  CHECK(choices({{kA, kB}, {kA, kB}}) == std::vector<int>{0, 1});
  CHECK(choices({{kA, kB, kC, kD}, {kA, kB, kC, kD}}) == std::vector<int>{0, 1});
}

TEST_CASE("Ranks to which Slurm shows different GPUs take the first they see") {
  CHECK(choices({{kA}, {kB}, {kC}, {kD}}) == std::vector<int>{0, 0, 0, 0});
  CHECK(choices({{kB}, {kA}}) == std::vector<int>{0, 0});
  CHECK(choices({{kA, kB}, {kC, kD}}) == std::vector<int>{0, 0});
}

TEST_CASE("Ranks that share a GPU are refused with its address and the remedy") {
  const auto refuses = [](const GpuViews& views, const std::string& words) {
    for (int rank = 0; rank < static_cast<int>(views.size()); ++rank) {
      CHECK_THROWS_AS(choose_gpu(views, rank, "node7"), UserError);
      CHECK_THROWS_WITH(choose_gpu(views, rank, "node7"),
                        Catch::Contains(words) && Catch::Contains("start one rank per GPU") &&
                            Catch::Contains("--gpus-per-task=1") && Catch::Contains("--device cpu"));
    }
  };
  refuses({{kA}, {kA}}, "2 ranks on node7 share one GPU (0000:10:1c.0; MIG instances of one GPU count as one");
  // Two MIG instances of one GPU, shown as two devices at one address.
  refuses({{kA, kA}, {kA, kA}}, "2 ranks on node7 share one GPU (0000:10:1c.0;");
  refuses({{kA}, {kB}, {kA}}, "3 ranks on node7 share 2 GPUs (0000:10:1c.0, 0000:10:1d.0;");
  refuses({{kA, kB}, {kA, kB}, {kA, kB}}, "3 ranks on node7 share 2 GPUs");
}

TEST_CASE("Views that overlap partially are refused") {
  CHECK_THROWS_WITH(choose_gpu({{kA, kB}, {kB, kC}}, 0, "node7"),
                    Catch::Contains("the ranks on node7 see different GPUs, some of them in common"));
  CHECK_THROWS_AS(choose_gpu({{kA, kB}, {kB, kA}}, 1, "node7"), UserError);
}

TEST_CASE("Without a GPU one sentence names the cause and the remedy") {
  const NoGpu seen{.host = "node7", .cuda_error = "no CUDA-capable device is detected", .driver_found = true};
  const auto why = [&](const NoGpu& no_gpu, std::map<std::string, std::string> variables) {
    return why_no_gpu(no_gpu, environment(std::move(variables)));
  };
  CHECK(why(seen, {{"CUDA_VISIBLE_DEVICES", ""}}) ==
        "--device cuda: CUDA shows no GPU on node7 (no CUDA-capable device is detected; CUDA_VISIBLE_DEVICES=): the "
        "driver is loaded, so the variable hides its GPUs; unset it, or list GPUs in it");
  CHECK_THAT(why(seen, {}), Catch::Contains("CUDA_VISIBLE_DEVICES is unset") && Catch::Contains("nvidia-smi"));
  NoGpu without = seen;
  without.driver_found = false;
  CHECK_THAT(why(without, {}), Catch::Contains("NVIDIA's driver is not loaded there"));
  // In a job that was given no GPU, the variable does not matter.
  for (const char* none : {"0", ""}) {
    CHECK_THAT(
        why(seen, {{"SLURM_JOB_ID", "17"}, {"SLURM_GPUS_ON_NODE", none}, {"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}),
        Catch::Contains("CUDA_VISIBLE_DEVICES=NoDevFiles") && Catch::Contains("given this step no GPU") &&
            Catch::Contains("--gpus-per-node"));
  }
  CHECK_THAT(why(without, {{"SLURM_JOB_ID", "17"}, {"SLURM_GPUS_ON_NODE", "8"}}),
             Catch::Contains("NVIDIA's driver is not loaded there"));
}

TEST_CASE("A run on the CPU of a node whose GPUs Slurm has given to it is warned about") {
  CHECK(gpus_from_slurm(environment({})) == 0);
  CHECK(gpus_from_slurm(environment({{"SLURM_GPUS_ON_NODE", "8"}})) == 8);
  CHECK(cpu_instead_of_gpus(0, "node7").empty());
  CHECK_THAT(cpu_instead_of_gpus(8, "node7"),
             Catch::Contains("training on the CPU, although Slurm has given this job 8 GPUs on node7"));
}

TEST_CASE("NVIDIA's libraries write one address in several ways") {
  CHECK(parallel::same_gpu("00000000:10:1C.0", "0000:10:1c.0"));
  CHECK_FALSE(parallel::same_gpu("00000001:10:1C.0", "0000:10:1c.0"));
  CHECK_FALSE(parallel::same_gpu("00000000:10:1D.0", "0000:10:1c.0"));
  CHECK_FALSE(parallel::same_gpu("", ""));
}

}  // namespace mpzero
