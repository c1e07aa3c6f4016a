#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "app/plan/calibration_data.hpp"
#include "model/architecture/config.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::plan {

struct CalibrateOptions {
  std::string device = "auto";  // "auto" (a GPU if present and supported by this build), "cuda" or "cpu"
  double seconds = 60;          // time limit, after which remaining sizes are skipped
  // Models whose layers and heads are measured. Default: the presets in configs/models.
  std::vector<model::ModelConfig> models;
  // Micro-batches to measure, as pairs (number of sequences, sequence length), in order of priority. Default:
  // default_micro_batches().
  std::vector<std::pair<int64_t, int64_t>> micro_batches;
  int64_t parameters = 40'000'000;  // number of parameters that the timed AdamW calls update
  int64_t copy_bytes = int64_t{1} << 28;
  // Ranks of a host, which measure its CPU concurrently, as in training. If `ranks` is null, only this process
  // measures. Rank 0 writes the calibration file.
  parallel::MpiRuntime* ranks = nullptr;
};

// Returns micro-batches of 512 to 16,384 tokens for a GPU, and of 128 to 2,048 tokens for a CPU.
std::vector<std::pair<int64_t, int64_t>> default_micro_batches(at::Device device);

// Measures matmuls (tuned as in training, and in FP8 if supported), attention, other kernels, AdamW on device and host,
// and copies. Runs for about options.seconds seconds. Overwrites `file`. Preserves the device names of an existing
// calibration of the same device. Prints progress to stderr. Throws UserError if the device is unavailable or `file` is
// not writable. Collective over options.ranks.
CalibrationData calibrate(const std::filesystem::path& file, const CalibrateOptions& options);

// Returns the median relative deviation of FullStep::factor from its median over `steps`. Layers and their operations
// are measured separately, so the deviation is large if the load from other processes varies. Returns 1 if the median
// factor is outside (0.5, 2).
double spread_of_steps(const std::vector<CalibrationData::FullStep>& steps);

}  // namespace mpzero::plan
