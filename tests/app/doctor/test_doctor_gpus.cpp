#include "app/doctor/gpus.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::doctor {
namespace {

constexpr int kCuda = 13000;

std::vector<Finding> look(const FakeRoot& root, const std::string& nvml, const Job& job = {}) {
  const Setting setting("MPZERO_FAKE_NVML", nvml);
  const System system = root.system();
  return check_gpus(system, job, survey_gpus(system.nvml), kCuda);
}

}  // namespace

TEST_CASE("healthy GPUs pass every check") {
  const FakeRoot root;
  root.make_instance("p5.48xlarge");
  const std::vector<Finding> findings = look(root, "", {.local_ranks = 8, .world_size = 16, .hosts = 2});
  CHECK(findings.size() == 7);
  CHECK(worst(findings) == Status::kOk);
  CHECK(find(findings, "gpus").message == "8 x NVIDIA-H100");
  CHECK(find(findings, "driver").message == "580.95.05, up to CUDA 13.0");
  CHECK(find(findings, "pcie").message == "x16, generation 1 now (an idle link rests), 5 at most");
}

TEST_CASE("a machine without GPUs trains on the CPU; one with GPUs and no driver does not") {
  const FakeRoot root;
  System system = root.system();
  system.nvml = {"libno-such-nvml.so.1"};
  CHECK(worst(check_gpus(system, {}, survey_gpus(system.nvml), kCuda)) == Status::kOk);
  root.write("sys/bus/pci/devices/0000:00:1e.0/class", "0x030200\n");
  root.write("sys/bus/pci/devices/0000:00:1e.0/vendor", "0x10de\n");
  const Finding finding = find(check_gpus(system, {}, survey_gpus(system.nvml), kCuda), "gpus");
  CHECK(finding.status == Status::kFailure);
  CHECK_THAT(finding.message, Catch::Contains("libnvidia-ml.so.1"));
}

TEST_CASE("a missing GPU is found against the instance type and against the PCI bus") {
  const FakeRoot root;
  root.make_instance("p5.48xlarge");
  CHECK(find(look(root, "gpus=7"), "gpus").message == "7 GPUs where a p5.48xlarge has 8");
  CHECK(find(look(root, "gpus=7"), "gpus").status == Status::kFailure);
  CHECK(find(look(root, "lost=3"), "gpus").message == "GPU 3 does not answer the driver");

  const FakeRoot bus;
  for (const char* slot : {"1e", "1f"}) {
    bus.write(std::string("sys/bus/pci/devices/0000:00:") + slot + ".0/class", "0x030200\n");
    bus.write(std::string("sys/bus/pci/devices/0000:00:") + slot + ".0/vendor", "0x10de\n");
  }
  CHECK(find(look(bus, "gpus=1"), "gpus").message == "the driver shows 1 GPUs, the PCI bus 2");
  CHECK(find(look(bus, "gpus=1"), "gpus").status == Status::kWarning);
  CHECK(find(look(bus, "gpus=2"), "gpus").status == Status::kOk);
  CHECK(find(look(bus, "gpus=2", {.local_ranks = 4}), "gpus").message == "4 ranks share 2 GPUs");

  // What Slurm gave to the job counts, be it less than the machine has.
  CHECK(find(look(root, "gpus=4", {.allotted_gpus = 4}), "gpus").status == Status::kOk);
  CHECK(find(look(bus, "gpus=1", {.allotted_gpus = 1}), "gpus").status == Status::kOk);
  CHECK(find(look(root, "gpus=3", {.allotted_gpus = 4}), "gpus").message == "3 GPUs where Slurm gave 4 to the job");
}

TEST_CASE("a driver that does not start, or is too old, is a failure") {
  const FakeRoot root;
  CHECK_THAT(find(look(root, "init=18"), "gpus").message, Catch::Contains("Driver/library version mismatch"));
  const Finding old = find(look(root, "cuda=12080 driver=570.1"), "driver");
  CHECK(old.status == Status::kFailure);
  CHECK(old.message == "570.1, up to CUDA 12.8; mpzero is built with CUDA 13.0");
  CHECK(find(look(root, "cuda=13010"), "driver").status == Status::kOk);
}

TEST_CASE("throttled GPUs are named with the reason and their clock") {
  const FakeRoot root;
  const Finding hot = find(look(root, "throttle=72 sick=2 clock=345"), "throttling");
  CHECK(hot.status == Status::kFailure);
  CHECK(hot.message == "GPU 2: HW Slowdown + HW Thermal Slowdown (345 of 1980 MHz)");
  CHECK(find(look(root, "throttle=32 sick=0"), "throttling").status == Status::kWarning);
  CHECK(find(look(root, "throttle=128 sick=0"), "throttling").status == Status::kFailure);
  // Idle, and a power cap under load.
  CHECK(find(look(root, "throttle=5"), "throttling").status == Status::kOk);
}

TEST_CASE("memory errors, heat, narrow links and other users are found") {
  const FakeRoot root;
  CHECK(find(look(root, "uncorrected=3 sick=5"), "gpu_memory_errors").message == "GPU 5: 3 uncorrected errors");
  CHECK(find(look(root, "uncorrected=3"), "gpu_memory_errors").status == Status::kFailure);
  CHECK(find(look(root, "rows_failed=1"), "gpu_memory_errors").status == Status::kFailure);
  CHECK(find(look(root, "rows_pending=1"), "gpu_memory_errors").status == Status::kWarning);
  CHECK(find(look(root, "ecc=0"), "gpu_memory_errors").status == Status::kWarning);
  CHECK(find(look(root, "temperature=83 sick=1"), "temperature").message == "GPU 1: 83 C, slows down at 87 C");
  CHECK(find(look(root, "temperature=81"), "temperature").status == Status::kOk);
  CHECK(find(look(root, "pcie=8 sick=1"), "pcie").message == "GPU 1: x8 of x16");
  CHECK(find(look(root, "used_gib=7 sick=1"), "gpu_memory").message == "GPU 1: 7.0 GiB in use already");
}

}  // namespace mpzero::doctor
