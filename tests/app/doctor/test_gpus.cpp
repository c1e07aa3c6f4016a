#include "app/doctor/gpus.hpp"
#include "app/health/gpu_condition.hpp"
#include "app/health/stragglers.hpp"
#include "base/collectives.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::doctor {
namespace {

constexpr int kCuda = 13000;

std::vector<Finding> look(const FakeRoot& root, const std::string& nvml, const Job& job = {}) {
  const Setting setting("MPZERO_FAKE_NVML", nvml);
  const System system = root.system();
  return check_gpus(system, job, survey_gpus(system.nvml), kCuda);
}

GpuSurvey survey(const FakeRoot& root, const std::string& nvml) {
  const Setting setting("MPZERO_FAKE_NVML", nvml);
  return survey_gpus(root.system().nvml);
}

// The value as another rank receives it.
GpuSurvey sent(const GpuSurvey& survey) {
  SingleProcess alone;
  return all_gather(alone, survey).front();
}

}  // namespace

TEST_CASE("healthy GPUs pass every check") {
  const FakeRoot root;
  root.make_instance("p5.48xlarge");
  const std::vector<Finding> findings = look(root, "", {.local_ranks = 8, .world_size = 16, .hosts = 2});
  CHECK(findings.size() == 5);
  CHECK(worst(findings) == Status::kOk);
  CHECK(find(findings, "gpus").message == "8 x NVIDIA-H100");
  CHECK(find(findings, "driver").message == "580.95.05, up to CUDA 13.0");
}

TEST_CASE("a machine without GPUs trains on the CPU; GPUs without a driver are a failure") {
  const FakeRoot root;
  System system = root.system();
  system.nvml = {"libno-such-nvml.so.1"};
  CHECK(worst(check_gpus(system, {}, survey_gpus(system.nvml), kCuda)) == Status::kOk);
  root.write("sys/bus/pci/devices/0000:00:1e.0/class", "0x030200\n");
  root.write("sys/bus/pci/devices/0000:00:1e.0/vendor", "0x10de\n");
  const Finding finding = find(check_gpus(system, {}, survey_gpus(system.nvml), kCuda), "driver");
  CHECK(finding.status == Status::kFailure);
  CHECK_THAT(finding.message, Catch::Contains("libnvidia-ml.so.1"));
}

TEST_CASE("--device determines whether GPUs are checked and whether they may be missing") {
  const FakeRoot root;
  root.make_instance("p5.48xlarge");
  CHECK(find(look(root, "gpus=7", {.device = "cpu"}), "gpus").message == "not checked: --device cpu");
  CHECK(worst(look(root, "gpus=7", {.device = "cpu"})) == Status::kOk);

  const FakeRoot bare;
  System system = bare.system();
  system.nvml = {"libno-such-nvml.so.1"};
  const auto without = [&](const char* device, const char* check) {
    return find(check_gpus(system, {.device = device}, survey_gpus(system.nvml), kCuda), check);
  };
  CHECK(without("auto", "gpus").status == Status::kOk);
  CHECK(without("cuda", "driver").status == Status::kFailure);
}

TEST_CASE("a missing GPU is detected by the instance type and by the PCI bus") {
  const FakeRoot root;
  root.make_instance("p5.48xlarge");
  CHECK(find(look(root, "gpus=7"), "gpus").message == "the driver lists 7 GPUs, but a p5.48xlarge has 8");
  CHECK(find(look(root, "gpus=7"), "gpus").status == Status::kFailure);
  CHECK(find(look(root, "lost=3"), "gpus").message == "GPU 3 does not respond to the driver");

  const FakeRoot bus;
  for (const char* slot : {"1e", "1f"}) {
    bus.write(std::string("sys/bus/pci/devices/0000:00:") + slot + ".0/class", "0x030200\n");
    bus.write(std::string("sys/bus/pci/devices/0000:00:") + slot + ".0/vendor", "0x10de\n");
  }
  CHECK(find(look(bus, "gpus=1"), "gpus").message == "the driver reports 1 GPU, but the PCI bus has 2");
  CHECK(find(look(bus, "gpus=1"), "gpus").status == Status::kWarning);
  CHECK(find(look(bus, "gpus=2"), "gpus").status == Status::kOk);
  CHECK(find(look(bus, "gpus=2", {.local_ranks = 4}), "ranks_per_gpu").message == "4 ranks share 2 GPUs");

  // What Slurm gave to the job counts, even if it is less than the machine has.
  CHECK(find(look(root, "gpus=4", {.given_gpus = {4, "Slurm", "SLURM_GPUS_ON_NODE"}}), "gpus").status == Status::kOk);
  CHECK(find(look(bus, "gpus=1", {.given_gpus = {1, "Slurm", "SLURM_GPUS_ON_NODE"}}), "gpus").status == Status::kOk);
  CHECK(find(look(root, "gpus=3", {.given_gpus = {4, "Slurm", "SLURM_GPUS_ON_NODE"}}), "gpus").message ==
        "the driver lists 3 GPUs, but Slurm assigned 4 to the job");
}

TEST_CASE("the surveys of ranks that each see one GPU are merged") {
  const FakeRoot root;
  root.make_instance("p5.48xlarge");
  std::vector<GpuSurvey> surveys;
  for (const char* nvml : {"gpus=1 first=2", "gpus=1 first=0 throttle=64", "gpus=1 first=1", "gpus=1 first=1"}) {
    surveys.push_back(sent(survey(root, nvml)));
  }
  const GpuSurvey all = merge_surveys(surveys);
  REQUIRE(all.gpus.size() == 3);
  CHECK(all.gpus[0].throttle_reasons == 64);
  CHECK(all.gpus[2].pci_address == "00000000:1C:00.0");
  const Job job{.local_ranks = 3, .given_gpus = {3, "Slurm", "SLURM_GPUS_ON_NODE"}};
  CHECK(find(check_gpus(root.system(), job, all, kCuda), "gpus").status == Status::kOk);
  CHECK(find(check_gpus(root.system(), job, all, kCuda), "throttling").message ==
        "GPU 0: HW Thermal Slowdown (1980 of 1980 MHz)");
  CHECK(merge_surveys({survey(root, ""), survey(root, "")}).gpus.size() == 8);
  CHECK(merge_surveys({survey(root, ""), survey(root, "lost=3")}).problem == "GPU 3 does not respond to the driver");
}

TEST_CASE("a survey of GPUs survives serialization") {
  const FakeRoot root;
  const GpuSurvey reported = survey(root, "throttle=72 sick=2 clock=345 ecc=0 rows_pending=1 used_gib=7");
  const GpuSurvey received = sent(reported);
  CHECK(collectives::to_message(received) == collectives::to_message(reported));
  CHECK((received.library && received.driver == "580.95.05" && received.cuda_version == kCuda &&
         received.gpus.size() == 8));
  const GpuState& sick = received.gpus[2];
  CHECK((sick.throttle_reasons == 72 && sick.sm_clock == 345 && sick.ecc == false && sick.rows_pending == true));
  CHECK(sick.total_memory == uint64_t{80} << 30);
  CHECK(sick.used_memory == uint64_t{7} << 30);
  GpuSurvey odd;
  odd.gpus.emplace_back().name = "odd \xe9";
  CHECK_FALSE(sent(odd).gpus.front().temperature);
}

TEST_CASE("a slow rank's GPU is identified by PCI address, and the log reports why it is slow") {
  const FakeRoot root;
  const auto condition = [&](const std::string& nvml, const std::string& address) {
    const Setting setting("MPZERO_FAKE_NVML", nvml);
    return gpu_condition(address, root.system().nvml);
  };
  const std::string slow = condition("throttle=72 sick=2 clock=345 temperature=88", "0000:1c:00.0");
  CHECK(slow == "GPU 2: 345 of 1980 MHz, 88 °C, HW Slowdown, HW Thermal Slowdown");
  CHECK(condition("throttle=72 sick=2", "0000:1d:00.0") == "GPU 3: 1980 of 1980 MHz, 35 °C, not throttled");
  CHECK_THAT(condition("gpus=1 first=2 throttle=4", "0000:1c:00.0"),
             Catch::StartsWith("GPU 0: ") && Catch::EndsWith("SW Power Cap"));
  CHECK(condition("", "0000:99:00.0").empty());
  CHECK(gpu_condition("0000:1c:00.0", {"libno-such-nvml.so.1"}).empty());
  CHECK(gpu_condition(at::kCPU).empty());
  const Straggler late{.rank = 3, .share = 0.3, .steps = 19, .of = 20, .seconds = 0.3, .median_seconds = 0.2};
  CHECK(describe(late, "node7", slow) ==
        "straggler: rank 3 on node7: compute time 300.0 ms per step (median of the other ranks: 200.0 ms), "
        "more than 10% slower in 19 of the last 20 steps (GPU 2: 345 of 1980 MHz, 88 °C, HW Slowdown, HW Thermal "
        "Slowdown); check for other programs on this host.");
  CHECK_THAT(describe(late, "node7", ""), Catch::EndsWith("20 steps; check for other programs on this host."));
}

TEST_CASE("a driver that fails to initialize or is too old is a failure") {
  const FakeRoot root;
  CHECK_THAT(find(look(root, "init=18"), "gpus").message, Catch::Contains("Driver/library version mismatch"));
  const Finding old = find(look(root, "cuda=12080 driver=570.1"), "driver");
  CHECK(old.status == Status::kFailure);
  CHECK(old.message == "570.1, up to CUDA 12.8; mpzero is built with CUDA 13.0");
  CHECK(find(look(root, "cuda=13010"), "driver").status == Status::kOk);
}

TEST_CASE("throttled GPUs are reported with the reason and the clock") {
  const FakeRoot root;
  const Finding hot = find(look(root, "throttle=72 sick=2 clock=345"), "throttling");
  CHECK(hot.status == Status::kFailure);
  CHECK(hot.message == "GPU 2: HW Slowdown + HW Thermal Slowdown (345 of 1980 MHz)");
  CHECK(find(look(root, "throttle=32 sick=0"), "throttling").status == Status::kWarning);
  CHECK(find(look(root, "throttle=128 sick=0"), "throttling").status == Status::kFailure);
  // Idle, and a power cap under load.
  CHECK(find(look(root, "throttle=5"), "throttling").status == Status::kOk);
}

TEST_CASE("memory errors and other processes are reported") {
  const FakeRoot root;
  CHECK(find(look(root, "uncorrected=3 sick=5"), "gpu_memory_errors").message == "GPU 5: 3 uncorrected errors");
  CHECK(find(look(root, "uncorrected=3"), "gpu_memory_errors").status == Status::kFailure);
  CHECK(find(look(root, "rows_failed=1"), "gpu_memory_errors").status == Status::kFailure);
  CHECK(find(look(root, "rows_pending=1"), "gpu_memory_errors").status == Status::kWarning);
  CHECK(find(look(root, "ecc=0"), "gpu_memory_errors").status == Status::kWarning);
  CHECK(find(look(root, "used_gib=7 sick=1"), "gpu_memory").message == "GPU 1: 7.0 GiB already in use");
}

TEST_CASE("memory use on GPUs assigned by Slurm is a failure, reported with the processes") {
  const FakeRoot root;
  const Finding taken =
      find(look(root, "used_gib=7 pid=4242 sick=1", {.given_gpus = {8, "Slurm", "SLURM_GPUS_ON_NODE"}}), "gpu_memory");
  CHECK(taken.status == Status::kFailure);
  CHECK(taken.message == "GPU 1: 7.0 GiB (pid 4242: 7.0 GiB) in use on a GPU that Slurm assigned to this job");
  CHECK(find(look(root, "used_gib=7 pid=4242 sick=1"), "gpu_memory").status == Status::kWarning);
}

TEST_CASE("memory use on GPUs hidden from CUDA or of other MIG instances is ignored") {
  const FakeRoot root;
  const auto memory = [&](const std::string& nvml, const std::vector<std::string>& shown) {
    const GpuSurvey gpus = sent(survey(root, nvml));
    return find(check_gpus(root.system(), {.given_gpus = {4, "Slurm", "SLURM_GPUS_ON_NODE"}}, gpus, kCuda, shown),
                "gpu_memory")
        .status;
  };
  const std::vector<std::string> own = {"0000:1A:00.0", "0000:1b:00.0", "0000:1C:00.0", "0000:1D:00.0"};
  CHECK(memory("used_gib=7 sick=6", own) == Status::kOk);
  CHECK(memory("used_gib=7 sick=3", own) == Status::kFailure);
  CHECK(memory("used_gib=7 sick=3", {}) == Status::kOk);
  CHECK(memory("used_gib=7 mig=1 sick=3", own) == Status::kOk);
}

TEST_CASE("a build without GPU kernels is refused if the run uses GPUs") {
  const GpuSurvey gpus = survey(FakeRoot(), "");
  REQUIRE_FALSE(gpus.gpus.empty());
  CHECK(check_gpu_kernels({}, gpus, true).status == Status::kOk);
  CHECK(check_gpu_kernels({}, {}, false).status == Status::kOk);
  CHECK(check_gpu_kernels({.device = "cpu"}, gpus, false).status == Status::kOk);
  const Finding missing = check_gpu_kernels({.device = "cuda"}, gpus, false);
  CHECK(missing.status == Status::kFailure);
  CHECK_THAT(missing.remedy, Catch::Contains("MPZERO_GPU_ARCHITECTURES=all"));
}

}  // namespace mpzero::doctor
