#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>

#include "base/optimizer_state.hpp"
#include "parallel/adamw.hpp"
#include "parallel/memory_use.hpp"

namespace mpzero::parallel {

enum class Placement { kDevice, kHost };

// This rank's share of one unit: fp32 master weights and AdamW's moments, on the device that trains or in host memory.
// Moments on a GPU can be bf16.
class OptimizerShard {
 public:
  struct Options {
    Placement placement = Placement::kDevice;
    at::Device device = at::kCPU;                      // that trains
    bool pinned = false;                               // host memory
    std::optional<c10::cuda::CUDAStream> copy_stream;  // for gradients on their way to the host; none: the current one
    Placement parameter_placement = Placement::kDevice;  // of what update() will write
    at::ScalarType gradient_dtype = at::kFloat;
    at::ScalarType parameter_dtype = at::kFloat;
    at::ScalarType moment_dtype = at::kFloat;
    int64_t first = 0;  // place of the share's first element in the whole model
  };
  OptimizerShard(int64_t numel, const Options& options);

  // Starts to bring the gradient [numel] to where the update happens, beside what is queued on the current stream
  // later; `gradient` must stay untouched until update() returns.
  void fetch_gradient(const at::Tensor& gradient);
  // AdamW. Writes the rounded master weights to `parameter` [numel], on the device or in host memory.
  void update(const AdamWUpdate& update, const at::Tensor& parameter);

  // The first `count` elements of a state, where they are, in their own type: to be read only.
  at::Tensor state(StateKind kind, int64_t count) const { return first(kind, count); }
  // Copies the first values.numel() of a state to or from `values`, fp32 in host memory.
  void read(StateKind kind, const at::Tensor& values) const { values.copy_(first(kind, values.numel())); }
  void write(StateKind kind, const at::Tensor& values) { first(kind, values.numel()).copy_(values); }
  // The master weights, rounded, to `parameter` [numel].
  void publish(const at::Tensor& parameter) const;

  // The update happens on the host while a GPU trains.
  bool on_host() const { return staged_; }
  MemoryUse memory_use() const;

 private:
  at::Tensor first(StateKind kind, int64_t count) const;

  // States in host memory while the device that trains is a GPU: gradients come down, parameters go up.
  bool staged_;
  int64_t first_;
  at::Tensor master_, exp_avg_, exp_avg_sq_;
  at::Tensor gradient_;           // where the update reads it
  at::Tensor parameter_staging_;  // host, when staged
  std::optional<c10::cuda::CUDAStream> copy_stream_;
  at::cuda::CUDAEvent gradient_arrived_;
};

}  // namespace mpzero::parallel
