#include "app/plan/estimate/rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/config/zero_options.hpp"
#include "app/fp8/weight_codec.hpp"
#include "app/gpu/gpu_models.hpp"
#include "app/memory/memory_estimate.hpp"
#include "app/plan/estimate/plan_error.hpp"
#include "app/plan/shipped_calibrations.hpp"
#include "app/plan/unit_times.hpp"
#include "base/error.hpp"
#include "model/decoder.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero::plan {
namespace {

// Minimum time of a kernel, independent of the size of its data.
constexpr double kShortestKernel = 3e-6;
// Bytes per parameter of the calibrated AdamW: gradient and parameter in bf16, master weight and moments in fp32.
constexpr double kAdamWBytes = 28;
// CPU time of an event record or stream wait, relative to a kernel launch. Fitted to the 60 such calls in the backward
// pass of frozen_h100_qwen3_zero2_mb1_t512 on one GPU (bench/PLAN.md).
constexpr double kCallOfLaunch = 0.35;
// Assumed start-up time of a copy between host and device.
constexpr double kCopyStart = 1e-5;
// Returns the bytes per parameter of AdamW on the host: reads and writes of master weight and moments. Gradient and
// parameter stay in the cache (bench/RESULTS.md).
double host_bytes(at::ScalarType moments) {
  return 2 * (sizeof(float) + 2 * static_cast<double>(c10::elementSize(moments)));
}
// Fraction of PCIe's data-sheet rate that copies reach after packet headers: 55 of 64 GB/s, measured on H200s.
constexpr double kOfPcieCopy = 0.86;

// Time of FlashAttention with packed documents relative to cuDNN attention (bench/RESULTS.md, "Packed documents").
constexpr double kPackedAttention = 2.5;

// Estimates the slowdown of compute on a CPU calibrated with a different number of threads.
double threads_factor(const Calibration& calibration, const PlanMachine& machine) {
  const int measured = calibration.data().host.threads;
  if (!machine.is_cpu() || measured == 0 || machine.threads == 0) return 1;
  return static_cast<double>(measured) / machine.threads;
}

// Returns means over the layers, which may differ in FP8 matmuls and frozen parameters, and over the micro-batches of a
// step. In layers that keep their casts, the first micro-batch casts the weights. In other layers, the first
// micro-batch computes the amax values if they are kept.
UnitTimes mean_times(const Calibration& calibration, const RunSetup& setup, MicroBatchShape shape,
                     const parallel::ZeroOptions& options_of_zero, int64_t kept_casts) {
  const bool keeps_maxima =
      setup.config.zero.stage < 3 && shape.fp8 && shape.fp8->recipe.scaling == model::fp8::Scaling::kTensorwise;
  const model::Decoder decoder(setup.model, {.fp8 = shape.fp8});
  const std::vector<bool> in_codes =
      parallel::ZeroEngine::units_in_codes(decoder.units(), options_of_zero, setup.layout);
  std::vector<std::pair<double, UnitTimes>> all;
  const auto keeps_and_codes = [&](int64_t layer) {
    return std::pair<bool, bool>(layer < kept_casts, in_codes[decoder.layer_unit(layer)]);
  };
  for (const std::vector<int64_t>& kind : layer_kinds(decoder, shape.frozen, keeps_and_codes)) {
    const auto layers = static_cast<double>(kind.size());
    shape.layer = kind.front();
    const auto [keeps, codes] = keeps_and_codes(shape.layer);
    const auto add = [&](double weight, WeightCasts casts) {
      shape.casts = casts;
      if (weight > 0) all.emplace_back(weight, unit_times(calibration, setup.model, shape));
    };
    if (!keeps && !keeps_maxima) {
      add(layers, codes ? WeightCasts::kCodes : WeightCasts::kEachUse);
      continue;
    }
    const double first = 1.0 / static_cast<double>(options_of_zero.gradient_accumulation_steps);
    add(layers * first, keeps ? WeightCasts::kFirstUse : WeightCasts::kFirstMaxima);
    add(layers * (1 - first), keeps ? WeightCasts::kKept : WeightCasts::kKnownMaxima);
  }
  return mean_of(all);
}

bool estimates_fp32(const Calibration& calibration, const RunConfig& config) {
  return config.dtype != "bf16" && !calibration.has_fp32() && calibration.fp32_of_bf16();
}

// Also matches the names listed in the file.
bool is_of(const CalibrationData& data, const PlanMachine& machine) {
  if (machine.is_cpu()) return data.device == machine.processor;
  const auto matches = [&](const std::string& name) {
    const GpuModel* const model = find_gpu_model(name);
    return model != nullptr && model->name == machine.gpu;
  };
  return matches(data.device) || std::ranges::any_of(data.names, matches);
}

const char* name_of(Collective collective) {
  if (collective == Collective::kAllReduce) return "all-reduce";
  // An all-to-all sends as many bytes as an all-gather.
  return collective == Collective::kReduceScatter ? "reduce-scatter" : "all-gather";
}

// On a CPU, the cores that compute also run collectives.
void set_cpu_rates(SimulatedRun& run, const Calibration& calibration, const PlanMachine& machine) {
  run.costs.down = run.costs.up = [](int64_t) { return 0.0; };
  run.costs.launch = 0;
  run.host_adamw = [](int64_t) { return 0.0; };
  const double threads = std::max(1, machine.threads);
  run.costs.host = SharedCores::Options{.moves_beside = true, .share = threads / (threads + 1)};
  if (!has_collectives(calibration, machine)) return;
  run.within_host = [&calibration](Collective collective, int64_t bytes, at::ScalarType type) {
    return calibration.collective_seconds(name_of(collective), type, static_cast<double>(bytes)).value();
  };
}

}  // namespace

Calibration calibration_of(const PlanMachine& machine, const std::string& file) {
  const CalibratedRanks ranks =
      machine.is_cpu() ? CalibratedRanks{.ranks = machine.gpus, .threads = machine.threads} : CalibratedRanks{};
  const bool shipped = file.empty();
  Calibration calibration = Calibration::from_file(
      shipped ? calibration_for(machine.device_name(), ranks) : std::filesystem::path(file), shipped);
  if (calibration.data().gpu == machine.is_cpu()) {
    throw_user_error("{} is a calibration of {}, but the plan is for {}; use a calibration for {}", calibration.name(),
                     calibration.data().device, machine.name, machine.is_cpu() ? "a CPU" : "a GPU");
  }
  return calibration;
}

UnitTimes times_of_units(const Calibration& calibration, const RunSetup& setup, const PlanMachine& machine,
                         int64_t kept_casts) {
  parallel::ZeroOptions options = zero_options(setup.config, machine.device());
  options.codec = weight_codec(setup.config.fp8_options, setup.model);
  // Packed documents are modeled as sequences of their length, with a slower attention kernel on a GPU.
  const int64_t tokens = setup.config.micro_batch_size * setup.config.seq_length;
  const double slower = machine.is_cpu() ? 1 : kPackedAttention;
  const double document = std::min(1.0, slower * setup.attention_share) * static_cast<double>(setup.config.seq_length);
  const int64_t sequences = std::clamp<int64_t>(std::llround(static_cast<double>(tokens) / document), 1, tokens);
  MicroBatchShape shape = micro_batch_shape(setup.config, options, setup.layout);
  shape.sequences = sequences;
  shape.length = tokens / sequences;
  UnitTimes times = mean_times(calibration, setup, shape, options, kept_casts);
  times.scale(threads_factor(calibration, machine));
  return times;
}

void set_rates(SimulatedRun& run, const Calibration& calibration, const PlanMachine& machine) {
  const CalibrationData& data = calibration.data();
  const double slower = threads_factor(calibration, machine);
  const at::ScalarType gradient =
      run.options.gradient_accumulation_steps > 1 ? run.options.accumulation_dtype : run.options.communication_dtype;
  run.costs.memory = [&calibration, slower](int64_t bytes) {
    return kShortestKernel + slower * device_copy_seconds(calibration, static_cast<double>(bytes) / 2);
  };
  // Uses the rate at the size of the whole model, because the kernels of all units run back to back.
  const auto back_to_back = [&](const char* kernel, at::ScalarType type, double bytes_per_parameter) {
    const double whole = bytes_per_parameter * static_cast<double>(model::num_parameters(run.model));
    return [rate = slower * calibration.kernel_seconds(kernel, type, whole).seconds / whole](int64_t bytes) {
      return kShortestKernel + rate * static_cast<double>(bytes);
    };
  };
  run.costs.adamw = back_to_back("adamw", at::kFloat, kAdamWBytes);
  run.costs.squares = back_to_back("sum_of_squares", gradient, static_cast<double>(c10::elementSize(gradient)));
  if (machine.is_cpu()) return set_cpu_rates(run, calibration, machine);
  const auto copies = [&](PcieDirection direction) -> std::function<double(int64_t)> {
    if (machine.pcie_bytes_per_second > 0) {
      return [rate = kOfPcieCopy * machine.pcie_bytes_per_second](int64_t bytes) {
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
  run.costs.call = kCallOfLaunch * data.launch_seconds;
  run.costs.memory_bytes_per_second = data.copies.on_device;
  // The ranks of a host share its memory bandwidth.
  const double memory = host_estimate(calibration, machine).bytes_per_second;
  // Copies of gradients pass through host memory: written by the GPU, read by AdamW.
  const int64_t of_gradient = run.options.release_gradients ? 2 * static_cast<int64_t>(c10::elementSize(gradient)) : 0;
  run.host_adamw = [&calibration, ranks = machine.gpus, memory,
                    bytes =
                        host_bytes(run.options.moment_dtype) + static_cast<double>(of_gradient)](int64_t parameters) {
    // The calibration was measured with fp32 moments.
    const double one = memory > 0 ? static_cast<double>(parameters) * bytes / (kOfHostMemory * memory)
                                  : host_adamw_seconds(calibration, parameters) * bytes / host_bytes(at::kFloat);
    return one * ranks;
  };
}

HostEstimate host_estimate(const Calibration& calibration, const PlanMachine& machine) {
  if (machine.host_bytes_per_second > 0) return {machine.host_bytes_per_second, machine.name};
  if (calibration.data().host.adamw_parameters_per_second > 0) return {};
  return {machine.assumed_host_bytes_per_second * machine.gpus, machine.assumed_host};
}

bool host_adamw_is_estimate(const Calibration& calibration, const PlanMachine& machine) {
  return calibration.shipped() || host_estimate(calibration, machine).bytes_per_second > 0;
}

double relative_error(const Calibration& calibration, const PlanMachine& machine, const RunConfig& config) {
  const CalibrationData::Host& host = calibration.data().host;
  const bool same = !machine.is_cpu() || (host.threads == machine.threads && host.ranks == machine.gpus);
  const bool known = same && is_of(calibration.data(), machine);
  const double error = known ? calibration.error() : std::max(calibration.error(), kErrorOfEstimate);
  if (estimates_fp32(calibration, config)) return std::max(error, kErrorOfEstimate);
  return config.fp8_options && !calibration.has_fp8() ? std::max(error, kErrorOfPublished) : error;
}

std::string of_another_device(const Calibration& calibration, const PlanMachine& machine) {
  if (is_of(calibration.data(), machine)) return "";
  return fmt::format("--calibration {} is for {}, but the plan is for {}, so estimated times are less accurate.",
                     calibration.name(), calibration.data().device, machine.is_cpu() ? machine.processor : machine.gpu);
}

std::string estimated_products(const Calibration& calibration, const RunConfig& config) {
  if (estimates_fp32(calibration, config)) {
    return fmt::format(
        "--bf16 false (fp32): {} has no fp32 times, so matmul and attention times are estimated as {:.1f}x the bf16 "
        "times (data-sheet ratio, TF32 off) and are less accurate; measure fp32 with `mpzero plan --calibrate`.",
        calibration.name(), *calibration.fp32_of_bf16());
  }
  if (!config.fp8_options || calibration.has_fp8()) return "";
  return fmt::format(
      "--fp8 (fp8.enabled): {} has no FP8 times, so matmul times are estimated as 0.5x the bf16 times (data-sheet "
      "ratio) and are less accurate; measure FP8 with `mpzero plan --calibrate`.",
      calibration.name());
}

bool has_collectives(const Calibration& calibration, const PlanMachine& machine) {
  return machine.is_cpu() && machine.gpus > 1 && !calibration.data().collectives.empty();
}

}  // namespace mpzero::plan
