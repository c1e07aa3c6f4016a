#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/optimizer_state.hpp"
#include "base/parameter_source.hpp"
#include "base/process_group.hpp"
#include "parallel/adamw.hpp"
#include "parallel/communicator.hpp"
#include "parallel/gradient_store.hpp"
#include "parallel/memory_use.hpp"
#include "parallel/optimizer_shard.hpp"
#include "parallel/parameter_store.hpp"

namespace mpzero::parallel {

struct ZeroOptions {
  int stage = 2;  // 0: nothing sharded; 1: optimizer states; 2: gradients too; 3: parameters too
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kBFloat16;                // of parameters and activations
  at::ScalarType communication_dtype = at::kBFloat16;  // of gradients under way
  at::ScalarType accumulation_dtype = at::kFloat;      // of gradients over micro-batches
  at::ScalarType moment_dtype = at::kFloat;            // AdamW's; bf16 where they are on a GPU
  int64_t gradient_accumulation_steps = 1;
  Placement optimizer_placement = Placement::kDevice;  // offload_optimizer
  double optimizer_host_ratio = 1.0;                   // the share of the parameters whose states are on the host
  Placement parameter_placement = Placement::kDevice;  // offload_param, stage 3 only
  bool pin_memory = true;
  bool overlap = true;  // collectives run beside compute
  GatherLimits gather_limits;
  int64_t reduce_bucket_size = 500'000'000;  // elements of gradients being summed at a time
  AdamWOptions adamw;
  double gradient_clipping = 0.0;  // 0: off
};

// Global figures of one step, the same on every rank.
struct StepSummary {
  double loss = 0.0;       // mean over micro-batches and ranks
  double grad_norm = 0.0;  // L2 over all parameters, before clipping
};

// ZeRO (Rajbhandari et al. 2020) over flat units: shards what the stage shards, gathers units for the pass, sums
// gradients over the ranks, clips, and updates this rank's shard. It knows units by index and nothing of what they
// compute.
class ZeroEngine {
 public:
  // Two communicators, so that gathering parameters and summing gradients can overlap. All arguments but the options
  // outlive the engine.
  ZeroEngine(const std::vector<UnitSpec>& units, const ZeroOptions& options, Communicator& parameter_communicator,
             Communicator& gradient_communicator);
  ZeroEngine(const ZeroEngine&) = delete;
  ZeroEngine& operator=(const ZeroEngine&) = delete;

  // Sets the weights from `source` and the moments to zero. Collective over `group`: an error on one rank is thrown on
  // all.
  void initialize(const ParameterSource& source, ProcessGroup& group);

  ParameterStore& parameters() { return parameters_; }
  GradientStore& gradients() { return gradients_; }

  // Before the first micro-batch of a step.
  void begin_step();
  // After the last micro-batch: measures the step's gradients. `loss_sum`: this rank's losses added up, a scalar on the
  // device; `count`: how many there are over all ranks.
  void measure(const at::Tensor& loss_sum, int64_t count);
  // Clips and applies AdamW with this learning rate; `update` counts from 1. Changes nothing if the measured loss or
  // norm is not finite. On a GPU the work is only queued, unless the host has a part in it; the new parameters are on
  // their way when it returns.
  void update(double lr, int64_t update);
  // What measure() found; waits for the GPU, but for no update.
  StepSummary summary();

  MemoryUse memory_use() const;

  // This rank's share of a unit's state, without padding: elements [begin, begin + count) of the unit's parameters.
  // With stage 0 every rank holds all of it.
  struct Shard {
    int64_t begin = 0;
    int64_t count = 0;
  };
  Shard shard(size_t unit) const;
  // The span stays valid until the next call.
  std::span<const float> read_state(size_t unit, StateKind kind);
  // The same values where they are, on the device or in host memory, in their own type; to be read only. They are those
  // of the last update() for work queued on the current stream and, in host memory, at once, and change with the next.
  at::Tensor state(size_t unit, StateKind kind) const { return shards_[unit].state(kind, shard(unit).count); }
  // Restores all states: `read` fills elements [begin, begin + out.size()) of a unit. Collective like initialize().
  using StateReader = std::function<void(size_t unit, StateKind kind, int64_t begin, std::span<float> out)>;
  void restore(const StateReader& read, ProcessGroup& group);

 private:
  void publish_all();
  // Measures this rank's part of a unit's gradient and sends it to where its optimizer is, while backward goes on.
  void take_gradient(size_t unit);
  // Host memory of `count` fp32 values, the same at each call.
  at::Tensor staging(int64_t count);

  const std::vector<UnitSpec>& units_;
  ZeroOptions options_;
  Communicator& communicator_;
  int part_;  // of each unit, that this rank updates
  std::vector<FlatLayout> layouts_;
  ParameterStore parameters_;
  GradientStore gradients_;
  std::vector<OptimizerShard> shards_;
  at::Tensor partial_squares_;  // of this rank's gradients of this step, fp64 [units, partial sums] on the device
  at::Tensor totals_;           // squares and loss over all ranks, fp64 [2] in host memory
  at::Tensor gradient_scale_;   // fp32 scalar on the GPU
  at::cuda::CUDAEvent totals_arrived_;
  int64_t num_losses_ = 1;
  at::Tensor staging_;
};

}  // namespace mpzero::parallel
