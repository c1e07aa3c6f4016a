#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "bench/full_step.hpp"
#include "bench/roofline.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/matmuls.hpp"

namespace mpzero::bench {

using Tensors = std::vector<at::Tensor>;

// bf16 on the GPU.
at::Tensor random(at::IntArrayRef shape);

// Rotating inputs: one tensor of a shape per set.
class Rotating {
 public:
  Rotating(int sets, at::IntArrayRef shape) {
    for (int i = 0; i < sets; ++i) tensors_.push_back(random(shape));
  }
  at::Tensor& operator[](int set) { return tensors_[static_cast<size_t>(set)]; }
  int sets() const { return static_cast<int>(tensors_.size()); }

 private:
  Tensors tensors_;
};

// Measures the operations of a training step one by one, as they run in the step.
class Operations {
 public:
  Operations(const model::ModelConfig& config, int64_t micro_batch, int64_t length, Roofline& roofline);

  void forward_layer();
  void backward_layer();
  // `chunk`: the number of tokens that the head processes at a time.
  void head(int64_t chunk);
  // The weight gradients of a run that accumulates micro-batches, whose gradients are fp32.
  void fp32_gradients(int64_t chunk);
  void ends(FullStep& step);
  // The results of tuning for the products measured so far.
  std::vector<model::TunedMatmul> tuned() const { return matmuls_.tuned(); }

 private:
  int64_t qkv_size() const { return config_.query_size() + 2 * config_.key_value_size(); }
  bool has_qk_norm() const { return config_.model_type == "qwen3"; }
  bool has_bias() const { return config_.model_type == "qwen2"; }

  enum class Extra { kNone, kBias, kResidual };
  void product_forward(const std::string& part, const std::string& name, int64_t in, int64_t out,
                       Extra extra = Extra::kNone);
  void product_backward(const std::string& part, const std::string& name, int64_t in, int64_t out);
  // dy [N, out], x [N, in]; `accumulates`: adds to the gradient, which has type `type`.
  void weight_gradient(const std::string& part, const std::string& name, double calls, Rotating& dy, Rotating& x,
                       at::ScalarType type, bool accumulates);
  void norm_forward(const std::string& part, const std::string& name, double calls);
  void norm_backward(const std::string& part, const std::string& name, double calls, bool residual);
  void swiglu(const std::string& part, bool backward);
  void rotation(const std::string& part, bool backward);
  void small_weights(const std::string& part);
  void attention(const std::string& part, bool backward);

  const model::ModelConfig& config_;
  Roofline& roofline_;
  model::Matmuls matmuls_;
  int64_t batch_, length_, tokens_, hidden_, inner_;
  model::HeadCounts heads_;
  double layers_;
};

}  // namespace mpzero::bench
