#pragma once

#include <ATen/core/Tensor.h>

#include "base/parameter_spec.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/optimizer/adamw.hpp"
#include "parallel/optimizer/decay_ranges.hpp"

namespace mpzero::parallel {

class ThreadTeam;

enum class Placement { kDevice, kHost };

// fp32 master weights and AdamW moments (fp32 or bf16) of equal length.
struct OptimizerStates {
  at::Tensor master, exp_avg, exp_avg_sq;

  const at::Tensor& operator[](StateKind kind) const {
    return kind == StateKind::kMaster ? master : kind == StateKind::kExpAvg ? exp_avg : exp_avg_sq;
  }
  int64_t nbytes() const { return static_cast<int64_t>(master.nbytes() + exp_avg.nbytes() + exp_avg_sq.nbytes()); }
};

// Allocates states in host memory, first touched by the threads of `team` (null: the process's threads).
OptimizerStates make_host_states(int64_t numel, at::ScalarType moment_dtype, ThreadTeam* team);

// Optimizer states of this rank's shard of one unit, on the training device or in host memory.
class OptimizerShard {
 public:
  struct Options {
    Placement placement = Placement::kDevice;
    at::Device device = at::kCPU;  // training device
    at::ScalarType moment_dtype = at::kFloat;
    int64_t first = 0;           // position of the shard's first element in the full model
    ThreadTeam* team = nullptr;  // see make_host_states
    DecayRanges decay = {};      // elements with decay; empty: all elements
  };
  OptimizerShard(int64_t numel, const Options& options);

  // Updates the states with a gradient [numel] on their device. Writes the rounded master weights to `parameter`
  // [numel], which may be in host memory while the states are on a GPU. If the gradient's scale on the GPU is not
  // finite, the states and the parameters do not change.
  void update(const AdamWUpdate& update, const at::Tensor& gradient, const at::Tensor& parameter);

  // Returns a read-only view of the first `count` elements of a state, in the state's dtype.
  at::Tensor state(StateKind kind, int64_t count) const { return first(kind, count); }
  // Copy the first values.numel() elements of a state to or from `values`, fp32 in host memory.
  void read(StateKind kind, const at::Tensor& values) const { values.copy_(first(kind, values.numel())); }
  void write(StateKind kind, const at::Tensor& values) { first(kind, values.numel()).copy_(values); }
  // Sets all elements of a state to 0.
  void clear(StateKind kind) { first(kind, numel()).zero_(); }
  // Writes the rounded master weights to `parameter` [numel].
  void publish(const at::Tensor& parameter) const { parameter.copy_(states_.master); }

  OptimizerStates& states() { return states_; }
  const OptimizerStates& states() const { return states_; }
  int64_t numel() const { return states_.master.numel(); }
  int64_t first() const { return first_; }
  const DecayRanges& decay() const { return decay_; }
  // Returns true if the update runs on the host and the training device is a GPU.
  bool on_host() const { return on_host_; }
  // Moves the states to `device`. Later updates run on this device.
  void move_to(at::Device device);
  MemoryUse memory_use() const;

 private:
  at::Tensor first(StateKind kind, int64_t count) const;

  bool on_host_;
  int64_t first_;
  DecayRanges decay_;
  OptimizerStates states_;
};

}  // namespace mpzero::parallel
