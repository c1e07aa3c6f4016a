#include "app/plan/calibrate.hpp"

#include <ATen/Parallel.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <list>
#include <optional>
#include <set>

#include "app/machine/instances.hpp"
#include "app/measure/adamw_run.hpp"
#include "app/measure/collective_run.hpp"
#include "app/measure/copy_rates.hpp"
#include "app/measure/operation_times.hpp"
#include "app/plan/calibration.hpp"
#include "app/plan/calibration_file.hpp"
#include "app/plan/unit_times.hpp"
#include "base/error.hpp"
#include "base/gpu_kernels.hpp"
#include "base/output.hpp"
#include "base/words.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/shipped_folders.hpp"
#include "model/decoder.hpp"
#include "parallel/comm/gpu_address.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "parallel/host/core_assignment.hpp"
#include "parallel/host/tensor_memory.hpp"

namespace mpzero::plan {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using model::ModelConfig;
using model::Operation;
using model::Recompute;

// Error of plans if the machine was otherwise idle during the measurement.
constexpr double kError = 0.1;
constexpr double kMostError = 0.9;
// Error without times of whole layers, which reveal load from other programs.
constexpr double kErrorUnseen = 0.5;
constexpr double kLongestStep = 0.5;           // seconds of repeated layers, on the CPU
constexpr int64_t kBeyondCaches = 64 << 20;    // bytes of weights, on the CPU
constexpr int64_t kMostOnCpu = 1'000'000'000;  // maximum parameters of a preset measured on a CPU

at::Device choose_device(const std::string& wanted) {
  if (wanted == "cpu") return at::kCPU;
  const bool seen = c10::cuda::device_count() > 0;
  if (seen && built_with_gpu_kernels()) return {at::kCUDA, 0};
  if (wanted == "auto" && !seen) return at::kCPU;
  if (seen) throw_user_error("--calibrate: {}", no_gpu_kernels());
  throw_user_error("--calibrate with --device {}: CUDA detects no GPU; use a node with a GPU, or --device cpu", wanted);
}

std::string name_of(at::Device device) {
  if (device.is_cuda()) return parallel::gpu_properties(device.index()).name;
  return doctor::processor_name();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

// Returns a model between the tiny preset and the next larger preset, which has 100 times as many parameters.
ModelConfig between_presets(ModelConfig model) {
  model.vocab_size = 16384;
  model.hidden_size = 384;
  model.intermediate_size = 1024;
  model.num_hidden_layers = 8;
  model.num_attention_heads = 6;
  model.num_key_value_heads = 3;
  model.head_dim = 64;
  return model;
}

// Returns the models, smallest first, so that the time limit skips the largest.
std::vector<ModelConfig> models_of(const CalibrateOptions& options, at::Device device) {
  std::vector<ModelConfig> models = options.models;
  if (models.empty()) {
    std::set<fs::path> files;
    for (const fs::path& folder : io::shipped_folders("models")) {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().extension() == ".json") files.insert(entry.path());
      }
      if (!files.empty()) break;
    }
    for (const fs::path& file : files) {
      ModelConfig model = ModelConfig::from_file(file);
      if (!model.t5) {
        models.push_back(std::move(model));
      } else if (options.ranks == nullptr || options.ranks->rank() == 0) {
        print_warning(fmt::format(
            "--calibrate skips {}, because plans estimate T5's layers from the other models' times", file.string()));
      }
    }
  }
  if (models.empty()) {
    throw_user_error("--calibrate: no presets in configs/models; run mpzero from its checkout");
  }
  if (device.is_cpu() && options.models.empty()) {
    std::erase_if(models, [](const ModelConfig& model) { return model::num_parameters(model) > kMostOnCpu; });
    models.push_back(between_presets(models.front()));
  }
  std::sort(models.begin(), models.end(), [](const ModelConfig& a, const ModelConfig& b) {
    return model::num_parameters(a) < model::num_parameters(b);
  });
  return models;
}

std::vector<std::pair<int64_t, int64_t>> micro_batches_of(const CalibrateOptions& options, at::Device device) {
  return options.micro_batches.empty() ? default_micro_batches(device) : options.micro_batches;
}

// Returns the names in an existing calibration of the same device, which may contain additional names.
std::optional<std::vector<std::string>> names_in(const fs::path& file, const std::string& device) {
  try {
    const CalibrationData before = read_calibration(file);
    if (before.device == device) return before.names;
  } catch (const UserError&) {
    // The file is missing or invalid, and will be replaced.
  }
  return std::nullopt;
}

// Measures a CalibrationData within the time limit.
class Measurement {
 public:
  Measurement(const CalibrateOptions& options, at::Device device)
      : options_(options),
        device_(device),
        models_(models_of(options, device)),
        micro_batches_(micro_batches_of(options, device)),
        start_(Clock::now()) {
    data_.device = name_of(device);
    data_.names = {data_.device};
    data_.gpu = device.is_cuda();
    data_.date = today();
    data_.versions["torch"] = TORCH_VERSION;
    if (device.is_cuda()) {
      capability_ = parallel::gpu_properties(device.index()).capability;
      const auto attribute = [&](cudaDeviceAttr name) {
        int value = 0;
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, name, device.index()));
        return value;
      };
      data_.versions["compute_capability"] = fmt::format("{}.{}", attribute(cudaDevAttrComputeCapabilityMajor),
                                                         attribute(cudaDevAttrComputeCapabilityMinor));
    }
  }

  CalibrationData run() {
    host_and_links();
    const std::list<Work> works = all_works();
    ProgressBar bar("Calibrating", static_cast<int64_t>(works.size()), is_first());
    int64_t done = 0;
    bar.update(0);
    for (const Work& work : works) {
      // Always measure the first (smallest) micro-batch of each dtype, even if the time limit has passed.
      must_measure_ = static_cast<size_t>(done) < models_and_types().size() / models_.size();
      if (over()) break;
      measure_work(work);
      bar.update(++done, fmt::format("{} {} x {}", work.model->model_type, work.shape.sequences, work.shape.length));
    }
    must_measure_ = false;
    bar.clear();
    full_steps();
    const double least = data_.full_step.empty() ? kErrorUnseen : kError;
    data_.error = std::clamp(std::max(typical_spread(), spread_of_steps(data_.full_step)), least, kMostError);
    data_.source =
        fmt::format("mpzero plan --calibrate: measured {} of {} micro-batches of {} in {:.0f} s{}{}", done,
                    works.size(), counted(std::ssize(models_), "model"), seconds(),
                    ranks() > 1 ? fmt::format(" with {} concurrent ranks", ranks()) : "",
                    left_out_ > 0 ? fmt::format("; {} did not fit in memory", counted(left_out_, "measurement")) : "");
    if (data_.matmuls.empty() || data_.attention.empty()) {
      throw_user_error("--calibrate: no micro-batch fits in the memory of {}; stop other processes on this device",
                       data_.device);
    }
    return std::move(data_);
  }

 private:
  // A model and a micro-batch to measure.
  struct Work {
    const ModelConfig* model;
    MicroBatchShape shape;
    double cost() const {
      return static_cast<double>(shape.tokens()) * static_cast<double>(model::num_parameters(*model));
    }
  };

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool over() const { return !must_measure_ && seconds() > options_.seconds; }
  // Returns the number of repetitions and the time limit for timing one call to a unit.
  measure::Effort effort() const {
    return device_.is_cuda() ? measure::Effort{.repeats = 10, .seconds = 0.1, .least = 4}
                             : measure::Effort{.repeats = 20, .seconds = 0.3, .least = 3};
  }

  void host_and_links() {
    data_.copies = measure::copy_rates(device_, options_.copy_bytes);
    const int threads = at::get_num_threads();
    const auto parameters = static_cast<double>(options_.parameters);
    data_.host.threads = threads;
    if (ranks() > 1) collectives();
    data_.host.adamw_parameters_per_second =
        parameters / measure::host_adamw_seconds(options_.parameters, update_threads(), device_);
    data_.host.memory_bytes_per_second = measure::host_copy_rate(options_.copy_bytes);
    for (const int64_t part : {16, 4, 1}) {
      const int64_t count = std::max<int64_t>(1, options_.parameters / part);
      const auto size = static_cast<double>(count);
      data_.kernels["adamw"].push_back({at::kFloat, 28 * size, measure::adamw_seconds(device_, count)});
      data_.kernels["sum_of_squares"].push_back(
          {at::kBFloat16, 2 * size, measure::sum_of_squares_seconds(device_, count)});
    }
    if (device_.is_cuda()) data_.launch_seconds = launch_seconds();
  }

  // Returns the threads of optimizer updates: on a GPU machine, training leaves some cores free.
  int update_threads() const {
    if (device_.is_cpu()) return at::get_num_threads();
    const auto machine = parallel::CpuTopology::of_this_machine();
    return static_cast<int>(machine.hardware_threads(parallel::cores_for_updates(machine.cores())).size());
  }

  int ranks() const { return options_.ranks != nullptr ? options_.ranks->world_size() : 1; }
  bool is_first() const { return options_.ranks == nullptr || options_.ranks->rank() == 0; }

  void collectives() {
    parallel::MpiCommunicator communicator(*options_.ranks);
    data_.host.ranks = ranks();
    data_.collectives = measure::collective_times(communicator, *options_.ranks, kCollectiveSizes);
  }

  // Measures the host time per operation with a layer too small to keep the GPU busy.
  double launch_seconds() const {
    const MicroBatchShape shape{.sequences = 1, .length = 16};
    double both = 0;
    for (const bool backward : {false, true}) {
      both += layers_in_sequence(models_.front(), shape, 8, {.repeats = 3}, backward).host_seconds;
    }
    const UnitRecorder::Layer calls = UnitRecorder(models_.front(), shape, device_).layer(Recompute::kNone);
    return both / (calls.forward.launches() + calls.backward.launches());
  }

  // Returns the time per layer of the forward or backward passes of `layers` layers, each with its own weights and
  // activations. Because of GPU clocks and caches, this time differs from the sum of the times of the layer's
  // operations.
  measure::Timing layers_in_sequence(const ModelConfig& config, const MicroBatchShape& shape, int layers,
                                     const measure::Effort& effort, bool backward) const {
    measure::Timing timing;
    std::vector<std::function<void()>> runs;
    // A recorder's pass can run only within its callback, so the callbacks of all layers are nested.
    const std::function<void()> add_layer = [&] {
      if (std::ssize(runs) == layers) {
        timing = measure::measure(device_, layers, effort, [&](int layer) {
          runs[static_cast<size_t>(layer)]();
          return std::vector<at::Tensor>();
        });
        return;
      }
      bool after_forward = false;
      const auto at_pass = [&](const std::function<void()>& run) {
        if (std::exchange(after_forward, true) == backward) {
          runs.push_back(run);
          add_layer();
        } else if (backward) {
          run();
        }
      };
      UnitRecorder(config, shape, device_, /*max_logits=*/0,
                   UnitRecorder::RealDevice{.device = device_, .measure = at_pass})
          .layer(Recompute::kNone);
    };
    add_layer();
    return timing;
  }

  std::vector<std::pair<const ModelConfig*, at::ScalarType>> models_and_types() const {
    std::vector<std::pair<const ModelConfig*, at::ScalarType>> all;
    for (const ModelConfig& config : models_) {
      all.emplace_back(&config, at::kBFloat16);
      if (device_.is_cpu()) all.emplace_back(&config, at::kFloat);
    }
    return all;
  }

  // Returns the FP8 recipes that the device supports.
  std::vector<model::Fp8Options> fp8_options() const {
    constexpr int kTensorwise = 89, kRowwise = 90;
    std::vector<model::Fp8Options> all;
    model::Fp8Options options;
    options.filter_fqns.clear();
    if (capability_ >= kTensorwise) all.push_back(options);
    options.recipe.scaling = model::fp8::Scaling::kRowwise;
    if (capability_ >= kRowwise) all.push_back(options);
    return all;
  }

  std::list<Work> all_works() const {
    std::list<Work> works;
    for (const auto& [sequences, length] : micro_batches_) {
      for (const auto& [config, type] : models_and_types()) {
        works.push_back({config, {.sequences = sequences, .length = length, .type = type, .gradient_type = type}});
      }
      for (const model::Fp8Options& fp8 : fp8_options()) {
        for (const ModelConfig& config : models_) {
          works.push_back(
              {&config, {.sequences = sequences, .length = length, .fp8 = fp8, .casts = WeightCasts::kFirstUse}});
        }
      }
    }
    // fp32 training on GPUs is rare, so fp32 is measured last.
    if (device_.is_cuda()) {
      for (const auto& [sequences, length] : micro_batches_) {
        for (const ModelConfig& config : models_) {
          works.push_back(
              {&config, {.sequences = sequences, .length = length, .type = at::kFloat, .gradient_type = at::kFloat}});
        }
      }
    }
    // On a CPU, measure the cheapest models first, because the time limit skips the large ones.
    if (device_.is_cpu()) works.sort([](const Work& a, const Work& b) { return a.cost() < b.cost(); });
    return works;
  }

  // Measures the operations of all units in place, while the units run.
  void measure_work(const Work& work) {
    const int64_t evicted = device_.is_cuda() ? measure::kEvictedBytes : evicted_on_cpu(*work.model, work.shape.type);
    bool only_matmuls = false;
    const UnitRecorder::RealDevice real{.device = device_, .measure = [&](const std::function<void()>& run) {
                                          measure_unit(run, evicted, only_matmuls);
                                        }};
    const auto attempt = [&](const auto& call) {
      if (over()) return;
      try {
        call();
      } catch (const c10::OutOfMemoryError&) {
        ++left_out_;
      }
    };
    UnitRecorder recorder(*work.model, work.shape, device_, /*max_logits=*/0, real);
    attempt([&] { recorder.layer(Recompute::kNone); });
    attempt([&] { recorder.layer(Recompute::kSelective); });
    attempt([&] { recorder.head(); });
    attempt([&] { recorder.embedding_forward(); });
    attempt([&] { recorder.embedding_backward(); });
    if (work.shape.fp8 && work.shape.fp8->recipe.scaling == model::fp8::Scaling::kTensorwise) {
      MicroBatchShape of_codes = work.shape;
      of_codes.casts = WeightCasts::kCodes;
      attempt([&] { UnitRecorder(*work.model, of_codes, device_, /*max_logits=*/0, real).layer(Recompute::kNone); });
    }
    // Gradient accumulation uses fp32 gradients.
    only_matmuls = true;
    recorder.set_gradients(at::kFloat, /*accumulates=*/true);
    attempt([&] { recorder.layer(Recompute::kNone); });
    attempt([&] { recorder.head(); });
    if (device_.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
  }

  // `run` runs a call of a unit.
  void measure_unit(const std::function<void()>& run, int64_t evicted, bool only_matmuls) {
    const auto is_new = [&](const Operation& operation) {
      // ATen's matmuls inside T5's attention are not timed separately.
      if (operation.products || (only_matmuls && !operation.matmul)) return false;
      return !measured_.contains(describe(operation));
    };
    model::OperationRecorder recorder;
    run();
    if (over()) return;
    run();  // the first run may accumulate, and the second tunes matmuls
    if (std::ranges::none_of(recorder.seen, is_new)) return;
    for (const measure::OperationTime& time : measure::operation_times(device_, effort(), evicted, run)) {
      if (!is_new(time.operation)) continue;
      measured_.insert(describe(time.operation));
      if (time.timing.spread > 0) spreads_.push_back(time.timing.spread);
      add(time.operation, time.timing.seconds);
    }
  }

  void add(const Operation& operation, double seconds) {
    if (operation.matmul) {
      data_.matmuls.push_back({*operation.matmul, operation.adds, seconds});
    } else if (!operation.attention) {
      data_.kernels[std::string(operation.name)].push_back({operation.type, operation.bytes, seconds});
    } else if (operation.name == model::kAttentionForward) {
      data_.attention.push_back({*operation.attention, operation.type, seconds, 0});
    } else {
      add_backward(operation, seconds);
    }
  }

  // The entry exists, because layers run forward first.
  void add_backward(const Operation& operation, double seconds) {
    for (CalibrationData::Attention& measured : data_.attention) {
      if (measured.shape == *operation.attention && measured.type == operation.type)
        measured.backward_seconds = seconds;
    }
  }

  // Returns the median spread of timings, which is large if other programs use the device or the cores.
  double typical_spread() { return spreads_.empty() ? 0 : median(spreads_); }

  // Measures whole layers for some of the measured micro-batches.
  void full_steps() {
    std::erase_if(data_.attention, [](const CalibrationData::Attention& a) { return a.backward_seconds <= 0; });
    if (data_.matmuls.empty() || data_.attention.empty()) return;
    const Calibration single(data_, "this calibration");
    for (const auto& [sequences, length] : micro_batches_) {
      if (sequences * length < 2048 && device_.is_cuda()) continue;
      for (const auto& [config, type] : models_and_types()) {
        const MicroBatchShape shape{.sequences = sequences, .length = length, .type = type, .gradient_type = type};
        const UnitTimes times = unit_times(single, *config, shape);
        const double sum =
            times.layer_forward[Recompute::kNone].on_device() + times.layer_backward[Recompute::kNone].on_device();
        const Seconds& forward = times.layer_forward[Recompute::kNone];
        if (forward.launch_bound > forward.on_device() || forward.extrapolated > 0 || over_by(0.2)) continue;
        try {
          const measure::Effort effort{.repeats = 20, .seconds = device_.is_cuda() ? 0.3 : kLongestStep};
          double together = 0;
          for (const bool backward : {false, true}) {
            together += layers_in_sequence(*config, shape, layers_of_step(*config, shape), effort, backward).seconds;
          }
          data_.full_step.push_back({sum, together / sum});
        } catch (const c10::OutOfMemoryError&) {
          ++left_out_;
        }
      }
      if (data_.full_step.size() >= kFullSteps) return;
    }
  }
  // Returns the number of layers to run in sequence. On the CPU, their weights exceed the caches, as in training.
  int layers_of_step(const ModelConfig& config, const MicroBatchShape& shape) const {
    if (device_.is_cuda()) return 4;
    const int64_t layer = weights_of_layers(config, shape.type) / config.num_hidden_layers;
    return static_cast<int>(std::clamp<int64_t>(kBeyondCaches / layer, 2, config.num_hidden_layers));
  }
  static int64_t evicted_on_cpu(const ModelConfig& config, at::ScalarType type) {
    return std::min(kBeyondCaches, weights_of_layers(config, type));
  }
  // Returns the bytes of the weights of all layers.
  static int64_t weights_of_layers(const ModelConfig& config, at::ScalarType type) {
    const model::Decoder decoder(config);
    const auto size = static_cast<int64_t>(c10::elementSize(type));
    return config.num_hidden_layers * decoder.units()[decoder.layer_unit(0)].numel() * size;
  }
  // Returns true if the time limit is exceeded by more than `share`.
  bool over_by(double share) const { return seconds() > options_.seconds * (1 + share); }

  static constexpr size_t kFullSteps = 12;
  inline static const std::vector<int64_t> kCollectiveSizes = {64,      4 << 10,  32 << 10, 256 << 10,
                                                               2 << 20, 16 << 20, 64 << 20};

  const CalibrateOptions& options_;
  const at::Device device_;
  const std::vector<ModelConfig> models_;
  const std::vector<std::pair<int64_t, int64_t>> micro_batches_;
  const Clock::time_point start_;
  CalibrationData data_;
  int capability_ = 0;              // compute capability of the GPU, e.g. 90 for 9.0
  std::set<std::string> measured_;  // describe() of each operation
  std::vector<double> spreads_;     // spreads of operations with several rounds
  int left_out_ = 0;
  bool must_measure_ = false;
};

}  // namespace

std::vector<std::pair<int64_t, int64_t>> default_micro_batches(at::Device device) {
  if (device.is_cpu()) return {{4, 256}, {1, 512}, {1, 128}, {1, 2048}, {8, 256}};
  return {{1, 2048}, {8, 2048}, {1, 512}, {1, 8192}, {4, 512}, {1, 4096}, {1, 1024}, {2, 8192}, {4, 2048}, {16, 512}};
}

double spread_of_steps(const std::vector<CalibrationData::FullStep>& steps) {
  if (steps.empty()) return 0;
  std::vector<double> factors, away;
  for (const CalibrationData::FullStep& step : steps) factors.push_back(step.factor);
  const double middle = median(factors);
  if (!(middle > 0.5 && middle < 2)) return 1;
  for (const double factor : factors) away.push_back(std::abs(factor / middle - 1));
  return median(away);
}

CalibrationData calibrate(const fs::path& file, const CalibrateOptions& options) {
  const at::Device device = choose_device(options.device);
  if (device.is_cpu()) parallel::use_tensor_memory();
  // Check first, to fail before the measurements.
  io::check_writable(file.has_parent_path() ? file.parent_path() : fs::path("."));
  CalibrationData data = Measurement(options, device).run();
  if (options.ranks != nullptr && options.ranks->rank() > 0) return data;
  if (const auto names = names_in(file, data.device)) data.names = *names;
  write_calibration(file, data);
  return data;
}

}  // namespace mpzero::plan
