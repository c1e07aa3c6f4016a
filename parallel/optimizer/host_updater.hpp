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

// AdamW in host memory, concurrent with the caller and the device. Called by ZeroEngine. Implemented by HostOptimizer,
// and by a simulation that models its timing.
//
// All calls must come from one thread unless stated otherwise. After a failure, every wait rethrows the error.
class HostUpdater {
 public:
  struct Options {
    at::Device device = at::kCPU;  // training device
    bool pinned = false;
    at::ScalarType gradient_dtype = at::kFloat;
    at::ScalarType parameter_dtype = at::kFloat;
    HostMemoryPlan memory;  // memory of the updated units
  };

  HostUpdater() = default;
  virtual ~HostUpdater() = default;
  HostUpdater(const HostUpdater&) = delete;
  HostUpdater& operator=(const HostUpdater&) = delete;

  virtual bool updates(size_t unit) const = 0;

  // Sets the AdamW scalars that the next finish() is expected to receive. With these scalars, units may be updated
  // before finish().
  virtual void expect(const AdamWUpdate& update) = 0;
  // Passes a unit's gradient [numel], which is complete once the work queued so far on the current stream is done. Work
  // queued later must not read the unit's parameters before finish() or discard(). `parameter` [numel] receives the
  // rounded master weights. Both tensors, on the training device or in host memory, must remain valid until the update
  // queued by finish() is done; with HostMemoryPlan::keeps_gradients, the gradient must remain valid only until
  // wait_for_copy().
  virtual void take_gradient(size_t unit, const at::Tensor& gradient, const at::Tensor& parameter) = 0;
  // Makes later work on the current stream wait until the unit's last gradient is copied, so that this work may
  // overwrite the gradient. Requires HostMemoryPlan::keeps_gradients.
  virtual void wait_for_copy(size_t unit) = 0;
  // Queues the updates of all units, in unit order, with the gradients passed since the last finish().
  virtual void finish(const AdamWUpdate& update) = 0;
  // Drops the gradients passed since the last finish(). On return, states and parameters have the values from the last
  // finish().
  virtual void discard() = 0;
  // Writes the unit's rounded master weights to `parameter` [numel]. Work queued later must not read `parameter` before
  // wait().
  virtual void publish(size_t unit, const at::Tensor& parameter) = 0;

  // Returns true if all work queued for the unit is done, so wait() returns immediately.
  virtual bool ready(size_t unit) = 0;
  // Waits until ready() returns true. Work queued later on the current stream can read the uploaded parameters.
  virtual void wait(size_t unit) = 0;
  virtual void wait_for_all() = 0;
  // Waits until the unit's queued state updates are done; the parameters may still be in transit. Can be called from
  // any thread, but not while work is being queued.
  virtual void wait_for_states(size_t unit) = 0;

  // Returns a hold on the unit's states as of the end of all queued work. Can be called from any thread, but not while
  // work is being queued.
  virtual StateHold hold(size_t unit) = 0;
  // Allocates spare states for every unit, so that updates do not wait for holds if each unit is held at most once. The
  // spare states occupy as much memory as the states of all units. Must be called at most once, from any thread.
  virtual void add_spares_for_holds() = 0;
  // Waits until all holds on the unit's states are released.
  virtual void wait_for_holds(size_t unit) = 0;

  // Frees the unit's states, which are then updated elsewhere. Waits until all holds on the states are released.
  virtual void release(size_t unit) = 0;

  virtual MemoryUse memory_use() const = 0;
};

// `shards`: one per unit; null for units that are updated elsewhere.
using MakeHostUpdater =
    std::function<std::unique_ptr<HostUpdater>(std::vector<OptimizerShard*> shards, const HostUpdater::Options&)>;

}  // namespace mpzero::parallel
