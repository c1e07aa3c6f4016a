#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Flattens `values` (one element per unit): each unit's gradient residual, followed by its parameters, if defined.
std::vector<at::Tensor> carried_tensors(std::span<const parallel::Carried> values);

// A consistent snapshot of this rank's optimizer states in host memory, taken while training continues. Most states are
// copied during the next forward and backward pass, which does not change them. GPU states are copied to pinned memory
// on a separate stream, and host states are copied by `copy_threads` threads. States of the CPU optimizer of a GPU run
// are not copied; the next update writes the new states to spare memory instead. Carried state (parallel::Carried) is
// copied first, because the next reduction between shard groups changes the gradient residuals and waits for the copy.
//
//   begin() ──> [forward, backward] ──> before_update() ──> [update]
//      └──> wait(), from another thread ──> values() ──> release()
class StateSnapshot {
 public:
  // `writes[u]`: true to include this rank's shard of unit u. `carried`: true to include carried state; must be equal
  // on all ranks. `copy_threads`: number of threads that copy states in host memory. The engine must outlive this
  // object.
  StateSnapshot(parallel::ZeroEngine& engine, std::vector<bool> writes, bool carried, at::Device device,
                int copy_threads);
  ~StateSnapshot();
  StateSnapshot(const StateSnapshot&) = delete;
  StateSnapshot& operator=(const StateSnapshot&) = delete;

  // Returns the size of a snapshot in host memory in bytes.
  int64_t bytes() const { return copied_bytes_ + held_bytes_; }
  // Allocates the snapshot's host memory on a separate thread before the first begin(), since faulting in and pinning
  // many GiB takes seconds.
  void allocate();

  // Starts a snapshot of the current states. The previous snapshot must have been released. Collective if carried state
  // is included.
  void begin();
  // Must be called before the engine's next update. Waits until the next update can no longer change states that are
  // being copied. For copies from a GPU, only the current stream waits.
  void before_update();
  // Returns the time, in seconds, that the GPU has waited in before_update() since begin(). Must be called after
  // wait().
  double gpu_seconds_waited();
  // Waits until all states are copied. May be called on any thread, but not concurrently.
  void wait();
  // Returns the values of a unit's state at a page-aligned address. Valid until release().
  std::span<const float> values(size_t unit, StateKind kind) const;
  // Returns the bytes of element `index` of carried_tensors(). Valid until release().
  std::span<const std::byte> carried(size_t index) const;
  // Lets the engine overwrite the states that were not copied. Must be called after the last use of values().
  void release();

 private:
  enum class Way { kFromGpu, kFromHost, kHeld };
  struct Part {
    size_t unit = 0;
    StateKind kind = StateKind::kMaster;
    Way way = Way::kFromHost;
    int64_t begin = 0;  // offset in memory_ in elements, if copied
    int64_t count = 0;
  };

  struct CarriedPart {
    int64_t begin = 0;  // offset in memory_ in elements
    int64_t bytes = 0;
  };

  void take_from_gpu(const std::vector<at::Tensor>& carried);
  void take_from_host(const std::vector<at::Tensor>& carried);
  void wait_for_carried();

  parallel::ZeroEngine& engine_;
  at::Device device_;
  int copy_threads_;
  std::vector<Part> parts_;
  std::vector<std::optional<size_t>> part_of_unit_;  // index in parts_ of the unit's first state
  std::vector<CarriedPart> carried_;
  std::vector<parallel::StateHold> holds_;  // one element per unit; valid until release()
  int64_t copied_bytes_ = 0;
  int64_t held_bytes_ = 0;
  bool pinned_ = false;
  std::future<at::Tensor> allocation_;
  at::Tensor memory_;
  std::optional<c10::cuda::CUDAStream> stream_;
  c10::cuda::CUDAEvent carried_copied_;  // recorded after the copies of carried state
  c10::cuda::CUDAEvent copied_;          // recorded after all copies from the GPU
  c10::cuda::CUDAEvent wait_began_{cudaEventDefault};
  c10::cuda::CUDAEvent wait_ended_{cudaEventDefault};
  bool gpu_waited_ = false;  // true if the GPU has waited since begin()
  std::shared_future<void> from_host_;
};

}  // namespace mpzero
