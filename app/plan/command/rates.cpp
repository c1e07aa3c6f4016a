#include "app/plan/command/rates.hpp"

#include <algorithm>

#include "app/config/zero_options.hpp"
#include "app/plan/shipped_calibrations.hpp"
#include "app/plan/unit_times.hpp"

namespace mpzero::plan {
namespace {

// A small kernel, which the size of its data does not decide.
constexpr double kShortestKernel = 3e-6;
// One copy between host and device, before its bytes. An assumption.
constexpr double kCopyStart = 1e-5;
// Bytes of AdamW on the host for a parameter whose gradient and parameter stay in the cache: bench/RESULTS.md.
constexpr double kHostBytes = 24;
// What of their data sheet memory and PCIe reach: of the first 80% in STREAM as a rule; of PCIe after its packets'
// headers, measured on H200s 55 of 64 GB/s.
constexpr double kOfHostMemory = 0.8, kOfPcie = 0.86;

}  // namespace

Calibration calibration_of(const std::string& gpu, const std::string& file) {
  return Calibration::from_file(file.empty() ? calibration_for(gpu) : std::filesystem::path(file));
}

UnitTimes times_of_units(const Calibration& calibration, const RunSetup& setup) {
  const parallel::ZeroOptions options = zero_options(setup.config, at::Device(at::kCUDA));
  const bool accumulates = options.gradient_accumulation_steps > 1;
  return unit_times(calibration, setup.model,
                    {.sequences = setup.config.micro_batch_size,
                     .length = setup.config.seq_length,
                     .type = options.dtype,
                     .gradient_type = accumulates ? options.accumulation_dtype : options.communication_dtype,
                     .accumulates = accumulates});
}

void set_rates(SimulatedRun& run, const Calibration& calibration, const PlanMachine& machine) {
  const CalibrationData& data = calibration.data();
  const StateTypes types{.gradient = run.options.gradient_accumulation_steps > 1 ? run.options.accumulation_dtype
                                                                                 : run.options.communication_dtype,
                         .moments = run.options.moment_dtype,
                         .parameter = run.options.dtype};
  run.costs.memory = [&calibration](int64_t bytes) {
    return kShortestKernel + device_copy_seconds(calibration, static_cast<double>(bytes) / 2);
  };
  // The calibration has times of whole models; units follow each other without a gap.
  const int64_t whole = model::num_parameters(run.model);
  run.costs.adamw = [rate = adamw_seconds(calibration, whole, types) / static_cast<double>(whole)](int64_t parameters) {
    return kShortestKernel + rate * static_cast<double>(parameters);
  };
  run.costs.squares = [rate = sum_of_squares_seconds(calibration, whole, types.gradient) / static_cast<double>(whole)](
                          int64_t gradients) { return kShortestKernel + rate * static_cast<double>(gradients); };
  const auto copies = [&](PcieDirection direction) -> std::function<double(int64_t)> {
    if (machine.pcie_bytes_per_second > 0) {
      return [rate = kOfPcie * machine.pcie_bytes_per_second](int64_t bytes) {
        return kCopyStart + static_cast<double>(bytes) / rate;
      };
    }
    return [&calibration, direction](int64_t bytes) {
      return kCopyStart + pcie_seconds(calibration, static_cast<double>(bytes), direction);
    };
  };
  run.costs.down = copies(PcieDirection::kFromDevice);
  run.costs.up = copies(PcieDirection::kToDevice);
  run.costs.launch = data.launch_seconds;
  // The ranks of a host share its memory.
  const double memory = host_estimate(calibration, machine).bytes_per_second;
  run.host_adamw = [&calibration, ranks = machine.gpus, memory](int64_t parameters) {
    const double one = memory > 0 ? static_cast<double>(parameters) * kHostBytes / (kOfHostMemory * memory)
                                  : host_adamw_seconds(calibration, parameters);
    return one * ranks;
  };
}

HostEstimate host_estimate(const Calibration& calibration, const PlanMachine& machine) {
  if (machine.host_bytes_per_second > 0) return {machine.host_bytes_per_second, machine.name};
  if (calibration.data().host.adamw_parameters_per_second > 0) return {};
  return {machine.assumed_host_bytes_per_second * machine.gpus, machine.assumed_host};
}

double disk_bytes_per_second(const Calibration& calibration) {
  return calibration.data().host.disk_write_bytes_per_second;
}

double relative_error(const Calibration& calibration) { return calibration.error(); }

}  // namespace mpzero::plan
