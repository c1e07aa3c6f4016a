#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "app/simulation/simulated_device.hpp"
#include "parallel/codes/weight_codec.hpp"

namespace mpzero::plan {

// Wraps a codec for the simulated device, where reads and writes take time but transform no data.
class SimulatedCodec final : public parallel::WeightCodec {
 public:
  explicit SimulatedCodec(std::shared_ptr<const parallel::WeightCodec> codec) : codec_(std::move(codec)) {}

  std::vector<parallel::CodedRange> ranges(size_t unit) const override { return codec_->ranges(unit); }
  at::ScalarType type() const override { return codec_->type(); }
  void raise_maximum(const at::Tensor& values, const at::Tensor&) const override { take(values.nbytes()); }
  void scales_out(const at::Tensor& maxima, const at::Tensor& scales) const override {
    take(maxima.nbytes() + scales.nbytes());
  }
  void encode_out(const at::Tensor& values, const at::Tensor&, const at::Tensor& codes) const override {
    take(values.nbytes() + codes.nbytes());
  }

 private:
  static void take(size_t bytes) {
    SimulatedDevice& device = SimulatedDevice::current();
    device.queue(Work::kElementwise, "codes", device.costs().memory(static_cast<int64_t>(bytes)));
  }

  std::shared_ptr<const parallel::WeightCodec> codec_;
};

}  // namespace mpzero::plan
