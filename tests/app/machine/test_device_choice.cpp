#include <map>

#include "app/machine/device_choice.hpp"
#include "app/machine/gpu_promise.hpp"
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

TEST_CASE("the device is predicted before MPI starts, except if GPUs are broken") {
  const auto without = environment({});
  CHECK(expects_cpu("cpu", /*driver_found=*/true, without));
  CHECK_FALSE(expects_cpu("cuda", /*driver_found=*/false, without));
  CHECK(expects_cpu("auto", /*driver_found=*/false, without));
  CHECK_FALSE(expects_cpu("auto", /*driver_found=*/true, without));
  for (const auto& [visible, cpu] :
       std::map<std::string, bool>{{"", true}, {"-1", true}, {"NoDevFiles", true}, {"0", false}, {"3,1", false}}) {
    INFO(visible);
    CHECK(expects_cpu("auto", /*driver_found=*/true, environment({{"CUDA_VISIBLE_DEVICES", visible}})) == cpu);
  }
}

TEST_CASE("ranks that see the same GPUs use them by local rank") {
  CHECK(choices({{kA}}) == std::vector<int>{0});
  CHECK(choices({{kA, kB}}) == std::vector<int>{0});
  CHECK(choices({{kA, kB}, {kA, kB}}) == std::vector<int>{0, 1});
  CHECK(choices({{kA, kB, kC, kD}, {kA, kB, kC, kD}}) == std::vector<int>{0, 1});
}

TEST_CASE("ranks that see different GPUs under Slurm use their first visible GPU") {
  CHECK(choices({{kA}, {kB}, {kC}, {kD}}) == std::vector<int>{0, 0, 0, 0});
  CHECK(choices({{kB}, {kA}}) == std::vector<int>{0, 0});
  CHECK(choices({{kA, kB}, {kC, kD}}) == std::vector<int>{0, 0});
}

TEST_CASE("ranks that share a GPU are refused with its address and a remedy") {
  const auto refuses = [](const GpuViews& views, const std::string& words) {
    for (int rank = 0; rank < static_cast<int>(views.size()); ++rank) {
      CHECK_THROWS_AS(choose_gpu(views, rank, "node7"), UserError);
      CHECK_THROWS_WITH(choose_gpu(views, rank, "node7"),
                        Catch::Contains(words) && Catch::Contains("start one rank per GPU") &&
                            Catch::Contains("--gpus-per-task=1") && Catch::Contains("--device cpu"));
    }
  };
  refuses({{kA}, {kA}}, "2 ranks on node7 share one GPU (0000:10:1c.0; NCCL counts MIG instances");
  // Two MIG instances of one GPU, shown as two devices at one address.
  refuses({{kA, kA}, {kA, kA}}, "2 ranks on node7 share one GPU (0000:10:1c.0;");
  refuses({{kA}, {kB}, {kA}}, "3 ranks on node7 share 2 GPUs (0000:10:1c.0, 0000:10:1d.0;");
  refuses({{kA, kB}, {kA, kB}, {kA, kB}}, "3 ranks on node7 share 2 GPUs");
}

TEST_CASE("views that overlap partially are refused") {
  CHECK_THROWS_WITH(choose_gpu({{kA, kB}, {kB, kC}}, 0, "node7"),
                    Catch::Contains("the ranks on node7 see different but overlapping GPUs"));
  CHECK_THROWS_AS(choose_gpu({{kA, kB}, {kB, kA}}, 1, "node7"), UserError);
}

TEST_CASE("without a GPU, one sentence reports the cause and the remedy") {
  const CudaAnswer seen{
      .host = "node7", .code = 100, .cuda_error = "no CUDA-capable device is detected", .driver_found = true};
  const auto why = [&](const CudaAnswer& no_gpu, std::map<std::string, std::string> variables) {
    return why_no_gpu(no_gpu, environment(std::move(variables)));
  };
  CHECK(why(seen, {{"CUDA_VISIBLE_DEVICES", ""}}) ==
        "--device cuda: CUDA detects no GPU on node7 (no CUDA-capable device is detected; CUDA_VISIBLE_DEVICES=): the "
        "driver is loaded, but CUDA_VISIBLE_DEVICES hides all GPUs; unset the variable, or add GPUs to it");
  CHECK_THAT(why(seen, {}), Catch::Contains("CUDA_VISIBLE_DEVICES is unset") && Catch::Contains("nvidia-smi"));
  CudaAnswer without = seen;
  without.driver_found = false;
  CHECK_THAT(why(without, {}), Catch::Contains("NVIDIA's driver is not loaded"));
  // In a job that was given no GPU, the variable does not matter.
  for (const char* none : {"0", ""}) {
    CHECK_THAT(
        why(seen, {{"SLURM_JOB_ID", "17"}, {"SLURM_GPUS_ON_NODE", none}, {"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}),
        Catch::Contains("CUDA_VISIBLE_DEVICES=NoDevFiles") && Catch::Contains("Slurm assigned no GPU") &&
            Catch::Contains("--gpus-per-node"));
  }
  CHECK_THAT(why(without, {{"SLURM_JOB_ID", "17"}, {"SLURM_GPUS_ON_NODE", "8"}}),
             Catch::Contains("NVIDIA's driver is not loaded"));
}

TEST_CASE("warns about a CPU run on a node with GPUs assigned by Slurm") {
  CHECK(cpu_instead_of_gpus({}, "node7").empty());
  CHECK_THAT(cpu_instead_of_gpus({8, "Slurm", "SLURM_GPUS_ON_NODE"}, "node7"),
             Catch::Contains("training on the CPU although Slurm assigned this job 8 GPUs on node7 "
                             "(SLURM_GPUS_ON_NODE=8)"));
}

TEST_CASE("broken GPUs are attributed to their host, unless they are hidden or were not requested") {
  using Variables = std::map<std::string, std::string>;
  const GpuViews none = {{}, {}};
  const auto fault = [](int error, const GpuViews& views, Variables variables, bool others = true, bool driver = true) {
    const CudaAnswer seen{.host = "node7", .code = error, .cuda_error = "it says", .driver_found = driver};
    return fault_of_host(seen, views, 0, others, environment(std::move(variables)));
  };
  const Variables given = {{"SLURM_JOB_ID", "17"}, {"SLURM_GPUS_ON_NODE", "2"}};
  CHECK(fault(802, none, given) ==
        "CUDA detects no GPU on node7, to which Slurm assigned 2 GPUs (error 802, it says; CUDA_VISIBLE_DEVICES is "
        "unset): NVIDIA's Fabric Manager is not running or has not finished starting; check `systemctl "
        "status nvidia-fabricmanager`: GPUs with NVSwitch require Fabric Manager");
  // No user causes this, with or without Slurm.
  CHECK_THAT(fault(802, none, {}), Catch::StartsWith("CUDA detects no GPU on node7 (error 802"));
  CHECK_THAT(fault(999, none, given), Catch::Contains("nvidia-smi") && Catch::Contains("error 999"));
  CHECK_THAT(fault(803, none, given), Catch::Contains("reboot the node"));
  CHECK_THAT(fault(100, none, given), Catch::Contains("nvidia-smi"));
  CHECK_THAT(fault(100, none, given, true, false), Catch::Contains("driver is not loaded"));
  CHECK(fault(100, none, {}).empty());
  CHECK(fault(100, none, {{"SLURM_JOB_ID", "17"}}).empty());
  const auto listing = [&](const char* gpus) {
    Variables variables = given;
    variables.emplace("CUDA_VISIBLE_DEVICES", gpus);
    return variables;
  };
  CHECK(fault(100, none, listing("")).empty());
  // A container without the driver's libraries is the user's; a host without them among others is not.
  CHECK(fault(35, none, given, false).empty());
  CHECK_FALSE(fault(35, none, given, true).empty());

  CHECK_THAT(fault(0, {{kA}, {kA}}, given),
             Catch::StartsWith("CUDA detects 1 of the 2 GPUs that Slurm assigned to node7, too few for its 2 ranks"));
  CHECK(fault(0, {{kA}, {kA}}, listing("0")).empty());
  CHECK(fault(0, {{kA}, {kA}}, listing("MIG-ab,MIG-cd")).empty());
  CHECK(fault(0, {{kA}}, given).empty());
  CHECK(fault(0, {{kA}, {kB}}, given).empty());
  CHECK(fault(0, {{kA, kB}, {kA, kB}, {kA, kB}}, given).empty());
}

TEST_CASE("a failing GPU in a pod is attributed to its host") {
  const CudaAnswer dead{.host = "job-node-0-0.job", .code = 100, .cuda_error = "it says", .driver_found = true};
  const auto pod = environment({{"MPZERO_GPUS", "4"}});
  CHECK_THAT(fault_of_host(dead, {{}, {}, {}, {}}, 0, true, pod),
             Catch::StartsWith("CUDA detects no GPU on job-node-0-0.job, to which Kubernetes assigned 4 GPUs"));
  CHECK_THAT(fault_of_host(dead, {{kA}, {kA}, {kA}, {kA}}, 0, true, pod),
             Catch::StartsWith("CUDA detects 1 of the 4 GPUs that Kubernetes assigned to job-node-0-0.job"));
  // A job that asks for none is the user's mistake.
  CHECK(fault_of_host(dead, {{}}, 0, true, environment({{"MPZERO_GPUS", "0"}})).empty());
  CHECK_THAT(why_no_gpu(dead, environment({{"MPZERO_GPUS", "0"}})), Catch::Contains("the TrainJob requests no GPU"));
}

TEST_CASE("memory of other processes on a GPU assigned by Slurm is reported with these processes") {
  doctor::GpuState taken;
  taken.pci_address = "00000000:10:1C.0";
  taken.used_memory = uint64_t{7} << 30;
  taken.processes = {{.pid = 4242, .bytes = uint64_t{6} << 30}, {.pid = 4343, .bytes = std::nullopt}};
  const doctor::GpuSurvey survey{.library = true, .problem = {}, .driver = {}, .cuda_version = 0, .gpus = {taken}};
  const auto given = environment({{"SLURM_GPUS_ON_NODE", "2"}});
  CHECK(memory_of_others(survey, kA, "node7", given) ==
        "other processes use 7.0 GiB (pid 4242: 6.0 GiB, pid 4343) of GPU 0000:10:1c.0 of node7, which Slurm assigned "
        "to this job; stop them (`nvidia-smi` lists them), or exclude the node");
  CHECK(memory_of_others(survey, kB, "node7", given).empty());
  CHECK(memory_of_others(survey, kA, "node7", environment({})).empty());
  doctor::GpuSurvey idle = survey;
  idle.gpus[0].used_memory = uint64_t{1} << 30;
  CHECK(memory_of_others(idle, kA, "node7", given).empty());
}

TEST_CASE("NVIDIA's libraries write the same address in several ways") {
  CHECK(parallel::same_gpu("00000000:10:1C.0", "0000:10:1c.0"));
  CHECK_FALSE(parallel::same_gpu("00000001:10:1C.0", "0000:10:1c.0"));
  CHECK_FALSE(parallel::same_gpu("00000000:10:1D.0", "0000:10:1c.0"));
  CHECK_FALSE(parallel::same_gpu("", ""));
}

TEST_CASE("GPUs without FP8 are refused in one sentence") {
  CHECK_THROWS_AS(check_fp8_gpu("NVIDIA A10G", 86, false), UserError);
  CHECK_NOTHROW(check_fp8_gpu("NVIDIA L40S", 89, false));
  CHECK_THROWS_AS(check_fp8_gpu("NVIDIA L40S", 89, true), UserError);
  CHECK_NOTHROW(check_fp8_gpu("NVIDIA B200", 100, false));
  CHECK_THROWS_AS(check_fp8_gpu("NVIDIA B200", 100, true), UserError);
  CHECK_NOTHROW(check_fp8_gpu("NVIDIA H200", 90, true));
  CHECK_THROWS_WITH(check_fp8_gpu("NVIDIA A100-SXM4-40GB", 80, true),
                    Catch::Contains("A100-SXM4-40GB has compute capability 8.0"));
}

TEST_CASE("GPUs without FP8 are recognized by name") {
  for (const char* name : {"A10G", "A100", "NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA A10"}) {
    INFO(name);
    CHECK_THROWS_WITH(check_fp8_gpu(name, false), Catch::Contains(std::string(name) + " has compute capability"));
  }
  for (const char* name : {"L40S", "NVIDIA L4", "NVIDIA RTX 6000 Ada Generation", "", "A1000"}) {
    INFO(name);
    CHECK_NOTHROW(check_fp8_gpu(name, false));
  }
  CHECK_THROWS_WITH(check_fp8_gpu("NVIDIA L40S", true), Catch::Contains("capability 8.9"));
  for (const char* name : {"NVIDIA H100 80GB HBM3", "H200", "NVIDIA GH200 480GB"}) {
    CHECK_NOTHROW(check_fp8_gpu(name, true));
  }
  CHECK_NOTHROW(check_fp8_gpu("B200", false));
  CHECK_THROWS_WITH(check_fp8_gpu("B200", true), Catch::Contains("capability 10.0"));
}

}  // namespace mpzero
