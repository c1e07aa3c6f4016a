#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "model/architecture/config.hpp"
#include "model/recompute.hpp"

namespace mpzero::plan {

class Calibration;

// Seconds of one unit's part of a micro-batch on the compute stream, by what runs. Parts of one stream do not overlap.
struct Seconds {
  double matmuls = 0;
  double attention = 0;
  double elementwise = 0;   // everything else that moves bytes: norms, rotations, activations, cross entropy, sums
  double launch_bound = 0;  // what the host takes to queue it; not a part of device()

  double device() const { return matmuls + attention + elementwise; }
  // Where nothing has been queued ahead.
  double total() const { return std::max(device(), launch_bound); }
  Seconds& operator+=(const Seconds& other) {
    matmuls += other.matmuls;
    attention += other.attention;
    elementwise += other.elementwise;
    launch_bound += other.launch_bound;
    return *this;
  }
};

// One micro-batch of one rank on one device.
struct UnitTimes {
  Seconds embedding_forward, embedding_backward;
  Seconds layer_forward;
  // Of a layer that kept what this level keeps, what it recomputes included.
  std::array<Seconds, 3> layer_backward;
  Seconds head;          // the head's forward, loss and backward
  Seconds head_forward;  // without the backward, as in validation

  const Seconds& backward(model::Recompute level) const { return layer_backward[static_cast<size_t>(level)]; }
  Seconds& backward(model::Recompute level) { return layer_backward[static_cast<size_t>(level)]; }
};

// `bf16`: of weights and activations; else fp32.
UnitTimes unit_times(const Calibration& calibration, const model::ModelConfig& model, int64_t micro_batch,
                     int64_t seq_length, bool bf16 = true);

// AdamW on the device, fused, of `parameters` with fp32 states: reads gradient and states, writes states and parameter.
double adamw_seconds(const Calibration& calibration, int64_t parameters);
// AdamW by all cores of the host.
double host_adamw_seconds(const Calibration& calibration, int64_t parameters);
// One direction between the device and pinned host memory.
double pcie_seconds(const Calibration& calibration, int64_t bytes);
// A kernel that reads and writes `bytes` of the device's memory in all: copies, conversions, sums of squares.
double memory_seconds(const Calibration& calibration, int64_t bytes);

}  // namespace mpzero::plan
