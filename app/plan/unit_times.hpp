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
  double launch_bound = 0;                             // of the host, to queue them
  double extrapolated = 0;                             // of the first three: sizes far from all that were measured

  double on_device() const { return matmuls + attention + elementwise; }
  // The device waits for the host where that takes longer.
  double total() const { return on_device() > launch_bound ? on_device() : launch_bound; }
  Seconds& operator+=(const Seconds& other);
};

// One micro-batch of one rank on one device.
struct UnitTimes {
  Seconds embedding_forward, embedding_backward, layer_forward;
  Seconds leaner_layer_forward;  // whose products' inputs are not kept: in FP8 it casts less
  std::array<Seconds, model::kRecomputes.size()> layer_backward;  // by what the forward kept
  Seconds head;                                                   // forward and backward
  double step_factor = 1;                                         // contained in the times

  void scale(double factor);
  const Seconds& forward(model::Recompute recompute) const {
    return recompute == model::Recompute::kNone ? layer_forward : leaner_layer_forward;
  }
  const Seconds& backward(model::Recompute recompute) const { return layer_backward[static_cast<size_t>(recompute)]; }
};

// Throws MissingTimes if the calibration lacks the types of the micro-batch.
UnitTimes unit_times(const Calibration& calibration, const model::ModelConfig& model,
                     const MicroBatchShape& micro_batch);

// The mean of the times of different layers, or micro-batches, each with its weight.
UnitTimes mean_of(const std::vector<std::pair<double, UnitTimes>>& weighted);

// AdamW and what it needs, for the parameters whose states a rank keeps.
struct StateTypes {
  at::ScalarType gradient = at::kBFloat16, moments = at::kFloat, parameter = at::kBFloat16;
  // Bytes that an update reads and writes for each parameter: the gradient in; master and moments in and out; the
  // parameter out.
  double adamw_bytes() const;
};
double adamw_seconds(const Calibration& calibration, int64_t parameters, const StateTypes& types = {});
double sum_of_squares_seconds(const Calibration& calibration, int64_t gradients,
                              at::ScalarType gradient = at::kBFloat16);
// With all threads of the calibrated machine. Throws MissingTimes if that has not been measured.
double host_adamw_seconds(const Calibration& calibration, int64_t parameters);
// Copies on the device: `bytes` are read and as many written.
double device_copy_seconds(const Calibration& calibration, double bytes);

enum class PcieDirection : uint8_t { kToDevice, kFromDevice };
// `both_ways`: copies in the other direction run at the same time. Throws MissingTimes if that has not been measured.
double pcie_seconds(const Calibration& calibration, double bytes, PcieDirection direction, bool both_ways = false);

}  // namespace mpzero::plan
