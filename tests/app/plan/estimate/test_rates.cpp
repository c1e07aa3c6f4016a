#include <ATen/ops/empty.h>

#include "app/plan/estimate/rates.hpp"
#include "app/simulation/simulated_device.hpp"
#include "parallel/optimizer/adamw.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;

namespace {

Calibration roofline_file() {
  return Calibration::from_file(MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json");
}

SimulatedRun run_of_qwen3() {
  return {.model = model::ModelConfig::from_file(kModels + "qwen3_0_6b.json"),
          .options = {},
          .layout = {},
          .ranks = {},
          .recompute = {},
          .times = {},
          .costs = {},
          .host_adamw = {},
          .links = {}};
}

}  // namespace

TEST_CASE("a host's own memory and bus replace the calibrated ones, and its ranks share them") {
  const Calibration calibration = roofline_file();
  PlanMachine machine{.name = "x",
                      .gpu = "H200",
                      .gpus = 4,
                      .assumed_host = "",
                      .links = {},
                      .network_basis = "",
                      .price = std::nullopt};
  SimulatedRun run = run_of_qwen3();
  set_rates(run, calibration, machine);
  // Of the file: 12 us to queue a kernel, 4,240 GB/s of copies on the device.
  CHECK(run.costs.launch == Approx(12e-6));
  CHECK(run.costs.call == Approx(0.35 * 12e-6));
  CHECK(run.costs.memory_bytes_per_second == Approx(4240e9));
  CHECK(run.host_adamw(1'000'000) == Approx(4 * host_adamw_seconds(calibration, 1'000'000)));
  CHECK(host_estimate(calibration, machine).bytes_per_second == 0);
  machine.host_bytes_per_second = 100e9;
  machine.pcie_bytes_per_second = 50e9;
  set_rates(run, calibration, machine);
  // 24 bytes a parameter at 80% of 100 GB/s, four ranks; 86% of 50 GB/s after 10 us.
  CHECK(run.host_adamw(1'000'000) == Approx(4 * 24e6 / 80e9));
  // 16 bytes with moments in bf16.
  run.options.moment_dtype = at::kBFloat16;
  set_rates(run, calibration, machine);
  CHECK(run.host_adamw(1'000'000) == Approx(4 * 16e6 / 80e9));
  machine.host_bytes_per_second = 0;
  set_rates(run, calibration, machine);
  CHECK(run.host_adamw(1'000'000) == Approx(4 * host_adamw_seconds(calibration, 1'000'000) * 16 / 24));
  CHECK(run.costs.down(43'000'000) == Approx(1e-5 + 1e-3));
  CHECK(run.costs.up(43'000'000) == Approx(1e-5 + 1e-3));
}

TEST_CASE("the optimizer's kernels on the device take time in proportion to their bytes") {
  const Calibration calibration = roofline_file();
  SimulatedRun run = run_of_qwen3();
  run.options.communication_dtype = at::kBFloat16;
  HostOptions options;
  options.gpu = "H200";
  set_rates(run, calibration, find_machine(options, "auto", 1));
  // Qwen3-0.6B: 4.351 and 4.369 ms for 28 bytes of each of 596,049,920 parameters; squares 0.696 and 0.786 ms.
  CHECK(run.costs.adamw(int64_t{28} * 596'049'920) == Approx(4.36e-3).epsilon(0.02));
  CHECK(run.costs.squares(int64_t{2} * 596'049'920) == Approx(0.74e-3).epsilon(0.1));
  SimulatedDevice device(run.costs);
  const auto of_type = [](at::ScalarType type) {
    return at::empty({1000}, at::TensorOptions().dtype(type).device(SimulatedDevice::device()));
  };
  parallel::adamw({.gradient = of_type(at::kFloat),
                   .master = of_type(at::kFloat),
                   .exp_avg = of_type(at::kBFloat16),
                   .exp_avg_sq = of_type(at::kBFloat16),
                   .parameter = of_type(at::kBFloat16)},
                  parallel::AdamWUpdate());
  REQUIRE(device.records().size() == 1);
  // Gradient 4, master 8, moments 8, parameter 2 bytes.
  CHECK(device.records()[0].end - device.records()[0].begin == Approx(run.costs.adamw(22'000)));
}

TEST_CASE("an unmeasured host has the memory bandwidth of an instance with the same GPUs") {
  CalibrationData data = Calibration::from_file(MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json").data();
  HostOptions options;
  options.gpu = "H100";
  const PlanMachine machine = find_machine(options, "auto", 2);
  CHECK(host_estimate(Calibration(data, ""), machine).bytes_per_second == 0);
  data.host = {};
  const HostEstimate host = host_estimate(Calibration(data, ""), machine);
  // p5.48xlarge: 410 GB/s for 8 GPUs.
  CHECK(host.bytes_per_second == Approx(2 * 410e9 / 8));
  CHECK(host.instance == "p5.48xlarge");
}
