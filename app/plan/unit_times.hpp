#pragma once

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
  double launch_bound = 0;                             // host time to launch the kernels
  double extrapolated = 0;                             // part of the device time at sizes far from any measured size

  double on_device() const { return matmuls + attention + elementwise; }
  // Returns the larger of device time and launch time.
  double total() const { return on_device() > launch_bound ? on_device() : launch_bound; }
  Seconds& operator+=(const Seconds& other);
};

// Times of a model's units for one micro-batch of one rank.
struct UnitTimes {
  Seconds embedding_forward, embedding_backward;
  model::ByLevel<Seconds> layer_forward, layer_backward;
  Seconds head;            // forward and backward
  double step_factor = 1;  // already applied to the times

  void scale(double factor);
};

// Returns the times of a model's units. Throws MissingTimes if the calibration lacks the micro-batch's dtypes.
UnitTimes unit_times(const Calibration& calibration, const model::ModelConfig& model,
                     const MicroBatchShape& micro_batch);

// Returns the weighted mean of the times of different layers or micro-batches.
UnitTimes mean_of(const std::vector<std::pair<double, UnitTimes>>& weighted);

// Returns the time of AdamW with all threads of the calibrated machine. Throws MissingTimes if AdamW was not measured.
double host_adamw_seconds(const Calibration& calibration, int64_t parameters);
// Returns the time of a copy of `bytes` bytes on the device.
double device_copy_seconds(const Calibration& calibration, double bytes);

enum class PcieDirection : uint8_t { kToDevice, kFromDevice };
// Returns the time of a PCIe copy. Throws MissingTimes if copies were not measured.
double pcie_seconds(const Calibration& calibration, double bytes, PcieDirection direction);

}  // namespace mpzero::plan
