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
  double seconds = 60;          // after so many, sizes that are left are not measured
  // Whose layers and heads are measured; empty: the presets of configs/models, each shape once.
  std::vector<model::ModelConfig> models;
  // Micro-batches, sequences and their length, the most useful first; empty: those of the device
  // (default_micro_batches).
  std::vector<std::pair<int64_t, int64_t>> micro_batches;
  int64_t parameters = 40'000'000;  // of the updates that are timed
  int64_t copy_bytes = int64_t{1} << 28;
  // The ranks of a host that measure at the same time, as they train; null: one. Rank 0 writes the file. On the CPU.
  parallel::MpiRuntime* ranks = nullptr;
};

// From 512 to 16,384 tokens on a GPU, from 128 to 2,048 on a CPU.
std::vector<std::pair<int64_t, int64_t>> default_micro_batches(at::Device device);

// Measures a device and its host for at most about a minute, and replaces `file`: products as the engine tunes them, in
// FP8 too where the GPU has them,
// attention, kernels, AdamW on device and host, copies. The names
// of devices in a file of the same device stay. Shows its progress on stderr. Throws UserError if the device
// cannot be used, or the file cannot be written, which is tried first. Collective over options.ranks.
CalibrationData calibrate(const std::filesystem::path& file, const CalibrateOptions& options);

// How far layers measured together are typically from what their operations one by one say of them, relative. Small
// where the machine did nothing else; where it did, the two were not measured under the same load, also if each
// operation's own times are alike. 1 where the factors say nothing of the kind: by more than two in their middle.
double spread_of_steps(const std::vector<CalibrationData::FullStep>& steps);

}  // namespace mpzero::plan
