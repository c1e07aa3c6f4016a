#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/host/memory_use.hpp"
#include "parallel/optimizer/adamw.hpp"
#include "parallel/optimizer/host_memory_plan.hpp"
#include "parallel/optimizer/optimizer_shard.hpp"
#include "parallel/optimizer/state_hold.hpp"

namespace mpzero::parallel {

// AdamW in host memory, concurrent with its caller and the device, driven by ZeroEngine. Implemented by HostOptimizer,
// and by a simulation that models the time.
//
// All calls come from one thread unless stated otherwise. Once the work has failed, every wait throws that failure.
class HostUpdater {
 public:
  struct Options {
    at::Device device = at::kCPU;  // for training
    bool pinned = false;
    at::ScalarType gradient_dtype = at::kFloat;
    at::ScalarType parameter_dtype = at::kFloat;
    HostMemoryPlan memory;  // of these units
  };

  HostUpdater() = default;
  virtual ~HostUpdater() = default;
  HostUpdater(const HostUpdater&) = delete;
  HostUpdater& operator=(const HostUpdater&) = delete;

  virtual bool updates(size_t unit) const = 0;

  // Sets the expected scalars of the next finish().
  virtual void expect(const AdamWUpdate& update) = 0;
  // The gradient [numel] of a unit is complete once the work queued on the current stream is done, and no work queued
  // after it reads the unit's parameters before finish() or discard(). Both tensors, on the training device or in host
  // memory, remain valid until the update that finish() queues is done; `parameter` [numel] receives the rounded master
  // weights.
  virtual void take_gradient(size_t unit, const at::Tensor& gradient, const at::Tensor& parameter) = 0;
  // Updates all units, in their order, with the gradients taken since the last finish().
  virtual void finish(const AdamWUpdate& update) = 0;
  // Drops the gradients taken since the last finish(). On return, states and parameters are as before.
  virtual void discard() = 0;
  // Writes the master weights, rounded, to `parameter` [numel], which no work queued after this call reads.
  virtual void publish(size_t unit, const at::Tensor& parameter) = 0;

  // Whether all work queued for the unit is done, so that wait() returns immediately.
  virtual bool ready(size_t unit) = 0;
  // Waits until ready(); work queued on the current stream from now on sees the uploaded parameters.
  virtual void wait(size_t unit) = 0;
  virtual void wait_for_all() = 0;
  // Waits until the unit's queued state updates are done; the parameters may still be in transfer. From any thread,
  // while no more work is queued.
  virtual void wait_for_states(size_t unit) = 0;

  // The unit's states after all queued work. From any thread, while no more work is queued.
  virtual StateHold hold(size_t unit) = 0;
  // Allocates spare states for every unit, so that no update waits for a hold if each unit is held at most once. Uses
  // as much memory as the states. From any thread, once.
  virtual void add_spares_for_holds() = 0;
  // Waits until nothing holds the unit's states.
  virtual void wait_for_holds(size_t unit) = 0;

  // Releases the unit's states, which are updated elsewhere from now on. Waits until nothing holds them.
  virtual void release(size_t unit) = 0;

  virtual MemoryUse memory_use() const = 0;
};

// `shards`: by unit; null for those that are updated elsewhere.
using MakeHostUpdater =
    std::function<std::unique_ptr<HostUpdater>(std::vector<OptimizerShard*> shards, const HostUpdater::Options&)>;

}  // namespace mpzero::parallel
