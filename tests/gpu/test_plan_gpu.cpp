// What plans of time are made of, on a GPU.
#include <c10/cuda/CUDACachingAllocator.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "app/plan/calibrate.hpp"
#include "app/plan/calibration.hpp"
#include "app/plan/unit_times.hpp"
#include "model/architecture/lora.hpp"
#include "parallel/comm/gpu_address.hpp"
#include "tests/app/simulation/compared_units.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::plan {

namespace fs = std::filesystem;

namespace {

c10::CachingDeviceAllocator::Stat allocated_bytes() {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

UnitRecorder::RealDevice gpu() {
  return {{at::kCUDA, 0},
          [] { return allocated_bytes().current; },
          [] {
            const int64_t peak = allocated_bytes().peak;
            c10::cuda::CUDACachingAllocator::resetPeakStats(0);
            return peak;
          }};
}

model::ModelConfig wide(model::ModelConfig config) {
  config.hidden_size = 1024;
  config.intermediate_size = 3072;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 8;
  config.head_dim = 64;
  config.vocab_size = 4096;
  return config;
}

// The allocator leaves up to 1 MiB of a block unsplit, and products are tuned to workspaces of up to 32 MiB.
constexpr double kTolerance = 0.02;

}  // namespace

TEST_CASE("records the operations and the memory of the GPU") {
  if (!has_gpu()) return;
  for (const bool deterministic : {false, true}) {
    const Deterministic scope(deterministic);
    for (const auto& config : model::small_models()) {
      for (const bool accumulates : {false, true}) {
        for (const auto& [type, gradient_type] : std::vector<std::pair<at::ScalarType, at::ScalarType>>{
                 {at::kFloat, at::kFloat}, {at::kBFloat16, at::kBFloat16}, {at::kBFloat16, at::kFloat}}) {
          // First the head needs the most memory, then the layer.
          for (const int64_t max_logits : {4096 * 8192, 4096 * 256}) {
            INFO(config.model_type << " " << type << ", gradients in " << gradient_type << ", accumulates "
                                   << accumulates << ", logits " << max_logits << ", deterministic " << deterministic);
            const MicroBatchShape shape{.sequences = 2,
                                        .length = 2048,
                                        .type = type,
                                        .gradient_type = gradient_type,
                                        .accumulates = accumulates,
                                        .deterministic = deterministic};
            CHECK(differences(wide(config), shape, gpu(), max_logits, kTolerance) == std::vector<std::string>());
          }
        }
      }
    }
  }
}

TEST_CASE("records the operations and the memory of packed documents on the GPU") {
  if (!has_gpu()) return;
  for (const bool deterministic : {false, true}) {
    const Deterministic scope(deterministic);
    for (const auto& config : model::small_models()) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        INFO(config.model_type << " " << type << ", deterministic " << deterministic);
        const MicroBatchShape shape{.sequences = 2,
                                    .length = 2048,
                                    .documents = 7,
                                    .loss_mask = true,
                                    .type = type,
                                    .gradient_type = type,
                                    .deterministic = deterministic};
        CHECK(differences(wide(config), shape, gpu(), 4096 * 256, kTolerance) == std::vector<std::string>());
      }
    }
  }
}

TEST_CASE("records the operations and the memory of T5 on the GPU") {
  if (!has_gpu()) return;
  const fs::path fixtures = fs::path(MPZERO_SOURCE_DIR) / "tests/model/fixtures";
  for (const auto& [name, dropout] :
       {std::pair("t5.json", 0.0), std::pair("t5_v1_1.json", 0.0), std::pair("t5.json", 0.1)}) {
    model::ModelConfig config = wide(model::ModelConfig::from_file(fixtures / name));
    config.num_key_value_heads = config.num_attention_heads;
    config.t5->dropout_rate = dropout;
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      INFO(name << ", layer " << layer << ", dropout " << dropout);
      const MicroBatchShape shape{.sequences = 8, .length = 1280, .source_length = 1024, .layer = layer};
      CHECK(differences(config, shape, gpu(), 4096 * 256, kTolerance) == std::vector<std::string>());
    }
  }
}

TEST_CASE("records the operations and the memory of adapters and sequence parallelism on the GPU") {
  if (!has_gpu()) return;
  for (model::ModelConfig config : model::small_models()) {
    INFO(config.model_type);
    const MicroBatchShape shared{.sequences = 4, .length = 4096, .sequence_ranks = 2, .mlp_tile = 512};
    CHECK(differences(wide(config), shared, gpu(), 4096 * 256, kTolerance) == std::vector<std::string>());
    config.lora = LoraConfig{.r = 32, .alpha = 16, .targets = model::lora_targets(config, "a test")};
    CHECK(differences(wide(config), {.sequences = 4, .length = 2048}, gpu(), 4096 * 256, kTolerance) ==
          std::vector<std::string>());
  }
}

TEST_CASE("records the operations and the memory of FP8 on the GPU") {
  if (!has_gpu()) return;
  constexpr int kFp8 = 89, kRowwise = 90;
  const int capability = parallel::gpu_properties(0).capability;
  if (capability < kFp8) return;
  using enum WeightCasts;
  model::Fp8Options rowwise;
  rowwise.recipe.scaling = model::fp8::Scaling::kRowwise;
  for (const auto& config : model::small_models()) {
    for (const WeightCasts casts : {kKept, kFirstUse, kEachUse, kFirstMaxima, kKnownMaxima, kCodes}) {
      INFO(config.model_type << ", casts " << static_cast<int>(casts));
      const auto shape = [&](const model::Fp8Options& fp8) {
        return MicroBatchShape{.sequences = 2, .length = 2048, .fp8 = fp8, .casts = casts};
      };
      CHECK(differences(wide(config), shape({}), gpu(), 4096 * 256, kTolerance) == std::vector<std::string>());
      if (capability < kRowwise || casts == kCodes) continue;
      CHECK(differences(wide(config), shape(rowwise), gpu(), 4096 * 256, kTolerance) == std::vector<std::string>());
    }
  }
}

TEST_CASE("a GPU calibration provides times for all units") {
  if (!has_gpu()) return;
  const fs::path folder = fs::temp_directory_path() / ("mpzero_calibrate_gpu_" + std::to_string(getpid()));
  CalibrateOptions options;
  options.device = "cuda";
  options.seconds = 600;
  options.models = {model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/qwen3_tiny.json")};
  options.micro_batches = {{1, 512}, {8, 2048}};
  options.parameters = 1'000'000;
  options.copy_bytes = 1 << 24;
  const CalibrationData data = calibrate(folder / "gpu.json", options);
  CHECK(data.gpu);
  CHECK(data.device.find("NVIDIA") != std::string::npos);
  // Between a slow link and any that there is.
  for (const double rate : {data.copies.to_device, data.copies.from_device, data.copies.both_ways}) {
    CHECK(rate > 1e8);
    CHECK(rate < 1e12);
  }
  CHECK(data.copies.on_device > 1e10);
  CHECK(data.launch_seconds > 1e-7);
  CHECK(data.launch_seconds < 1e-3);
  const Calibration calibration = Calibration::from_file(folder / "gpu.json");
  for (const at::ScalarType gradient_type : {at::kBFloat16, at::kFloat}) {
    const UnitTimes times = unit_times(calibration, options.models.front(),
                                       {.sequences = 8, .length = 2048, .gradient_type = gradient_type});
    CHECK(times.layer_forward[model::Recompute::kNone].extrapolated == 0);
    CHECK(times.layer_backward[model::Recompute::kNone].extrapolated == 0);
    CHECK(times.layer_backward[model::Recompute::kSelective].extrapolated == 0);
    CHECK(times.layer_backward[model::Recompute::kFull].on_device() >
          times.layer_backward[model::Recompute::kNone].on_device());
  }
  const bool has_fp8 = parallel::gpu_properties(0).capability >= 89;
  CHECK(calibration.has_fp8() == has_fp8);
  if (has_fp8) {
    const UnitTimes times =
        unit_times(calibration, options.models.front(),
                   {.sequences = 8, .length = 2048, .fp8 = model::Fp8Options{}, .casts = WeightCasts::kFirstUse});
    CHECK(times.layer_forward[model::Recompute::kNone].extrapolated == 0);
    CHECK(times.layer_backward[model::Recompute::kNone].extrapolated == 0);
  }
  fs::remove_all(folder);
}

}  // namespace mpzero::plan
