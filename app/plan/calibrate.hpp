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
  std::string device = "auto";  // "auto": a GPU if there is one and this build has kernels for it; "cuda"; "cpu"
  double seconds = 60;          // time limit; remaining sizes are skipped
  // Models whose layers and heads are measured; empty: the presets in configs/models, each shape once.
  std::vector<model::ModelConfig> models;
  // Micro-batches (sequences, length), most useful first; empty: default_micro_batches().
  std::vector<std::pair<int64_t, int64_t>> micro_batches;
  int64_t parameters = 40'000'000;  // updated by the timed AdamW calls
  int64_t copy_bytes = int64_t{1} << 28;
  // On the CPU: the host's ranks, which measure concurrently, as in training; null: this process only. Rank 0 writes
  // the file.
  parallel::MpiRuntime* ranks = nullptr;
};

// From 512 to 16,384 tokens on a GPU, from 128 to 2,048 on a CPU.
std::vector<std::pair<int64_t, int64_t>> default_micro_batches(at::Device device);

// Measures a device and its host for about options.seconds and replaces `file`: matmuls as the engine tunes them (also
// FP8 if the GPU supports it), attention, kernels, AdamW on device and host, copies. Keeps the device names of an
// existing file for the same device. Shows progress on stderr. Throws UserError if the device cannot be used or the
// file is not writable (checked first). Collective over options.ranks.
CalibrationData calibrate(const std::filesystem::path& file, const CalibrateOptions& options);

// Median relative deviation of the factors (time of a whole layer over the sum of its operations) from their median.
// Small on an idle machine. Under other load, the two were measured at different loads, even if the timings of each
// operation agree. 1 if the median factor is not between 0.5 and 2.
double spread_of_steps(const std::vector<CalibrationData::FullStep>& steps);

}  // namespace mpzero::plan
