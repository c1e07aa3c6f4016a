#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/div.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/round.h>

#include <utility>
#include <vector>

#include "parallel/codes/weight_codec.hpp"

namespace mpzero::parallel {

// Codec for positive values that needs no model: quantizes to multiples of 1/255 of the maximum.
class ToyCodec final : public WeightCodec {
 public:
  // `ranges`: one entry per unit.
  explicit ToyCodec(std::vector<std::vector<CodedRange>> ranges) : ranges_(std::move(ranges)) {}

  std::vector<CodedRange> ranges(size_t unit) const override { return ranges_[unit]; }
  at::ScalarType type() const override { return at::kByte; }
  void raise_maximum(const at::Tensor& values, const at::Tensor& largest) const override {
    largest.copy_(at::maximum(largest, values.to(at::kFloat).abs().max()));
  }
  void scales_out(const at::Tensor& maxima, const at::Tensor& scales) const override {
    scales[0].copy_(maxima.amax(0));
    scales[1].copy_(scales[0] / 255);
  }
  void encode_out(const at::Tensor& values, const at::Tensor& maximum, const at::Tensor& codes) const override {
    codes.copy_(values.to(at::kFloat).abs().mul(255).div(maximum).round());
  }

 private:
  std::vector<std::vector<CodedRange>> ranges_;
};

}  // namespace mpzero::parallel
