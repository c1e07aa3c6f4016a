#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "app/plan/calibration.hpp"
#include "app/simulation/unit_record.hpp"
#include "model/architecture/config.hpp"
#include "model/layer_activations.hpp"

namespace mpzero::plan {

struct Seconds {
  double matmuls = 0, attention = 0, elementwise = 0;  // on the device
  double launch_bound = 0;                             // host time to queue them
  double extrapolated = 0;                             // part of the first three at sizes far from all measured ones

  double on_device() const { return matmuls + attention + elementwise; }
  // The device waits for the host if queueing takes longer.
  double total() const { return on_device() > launch_bound ? on_device() : launch_bound; }
  Seconds& operator+=(const Seconds& other);
};

// One micro-batch of one rank on one device.
struct UnitTimes {
  Seconds embedding_forward, embedding_backward, layer_forward;
  Seconds leaner_layer_forward;  // does not keep the matmuls' inputs: casts less in FP8
  std::array<Seconds, model::kRecomputes.size()> layer_backward;  // indexed by Recompute
  Seconds head;                                                   // forward and backward
  double step_factor = 1;                                         // already applied to the times

  void scale(double factor);
  const Seconds& forward(model::Recompute recompute) const {
    return recompute == model::Recompute::kNone ? layer_forward : leaner_layer_forward;
  }
  const Seconds& backward(model::Recompute recompute) const { return layer_backward[static_cast<size_t>(recompute)]; }
};

// Throws MissingTimes if the calibration lacks the micro-batch's dtypes.
UnitTimes unit_times(const Calibration& calibration, const model::ModelConfig& model,
                     const MicroBatchShape& micro_batch);

// Weighted mean of the times of different layers or micro-batches.
UnitTimes mean_of(const std::vector<std::pair<double, UnitTimes>>& weighted);

// dtypes of AdamW's operands, for the parameters whose states a rank keeps.
struct StateTypes {
  at::ScalarType gradient = at::kBFloat16, moments = at::kFloat, parameter = at::kBFloat16;
  // Bytes that an update reads and writes per parameter: reads the gradient, reads and writes master weight and
  // moments, writes the parameter.
  double adamw_bytes() const;
};
double adamw_seconds(const Calibration& calibration, int64_t parameters, const StateTypes& types = {});
double sum_of_squares_seconds(const Calibration& calibration, int64_t gradients,
                              at::ScalarType gradient = at::kBFloat16);
// With all threads of the calibrated machine. Throws MissingTimes if this was not measured.
double host_adamw_seconds(const Calibration& calibration, int64_t parameters);
// A copy on the device that reads `bytes` and writes as many.
double device_copy_seconds(const Calibration& calibration, double bytes);

enum class PcieDirection : uint8_t { kToDevice, kFromDevice };
// `both_ways`: copies in the other direction run at the same time. Throws MissingTimes if this was not measured.
double pcie_seconds(const Calibration& calibration, double bytes, PcieDirection direction, bool both_ways = false);

}  // namespace mpzero::plan
