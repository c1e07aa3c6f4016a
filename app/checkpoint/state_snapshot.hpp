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

// The tensors that compression between nodes carries, unit by unit, each unit's gradient residual before its
// parameters. `values`: by unit.
std::vector<at::Tensor> carried_tensors(std::span<const parallel::Carried> values);

// This rank's optimizer states at one moment, in host memory, while training continues. States that the host updates
// while a GPU trains are held instead of copied: the next update writes to spare memory. Other states are copied during
// the next forward and backward pass, since they do not change until the next update: from a GPU on a separate stream
// into pinned memory, from host memory by a few threads. Carried state of compression between nodes is copied first,
// since the next sum between nodes changes the gradient residuals and waits for their copy.
//
//   begin() ──> [forward, backward] ──> before_update() ──> [update]
//      └──> wait(), from another thread ──> values() ──> release()
class StateSnapshot {
 public:
  // `writes[u]`: whether to include this rank's shard of unit u. `carried`: whether to include carried state; the same
  // on all ranks. `copy_threads`: for states in host memory. The engine must outlive this object.
  StateSnapshot(parallel::ZeroEngine& engine, std::vector<bool> writes, bool carried, at::Device device,
                int copy_threads);
  ~StateSnapshot();
  StateSnapshot(const StateSnapshot&) = delete;
  StateSnapshot& operator=(const StateSnapshot&) = delete;

  // Bytes of host memory that a snapshot uses.
  int64_t bytes() const { return copied_bytes_ + held_bytes_; }
  // Allocates this memory on a separate thread, so that begin() need not: touching and registering many GiB takes
  // seconds.
  void allocate();

  // Starts a snapshot of the states after the updates so far. Call after the last snapshot was released. Collective
  // with carried state.
  void begin();
  // Before the engine's next update: returns once updates do not touch states that are still being copied. On a GPU,
  // the update waits, not the caller.
  void before_update();
  // How long the GPU has waited in before_update() since begin(). Call after wait() has returned.
  double gpu_seconds_waited();
  // Waits for all values. Call from any one thread.
  void wait();
  // Page-aligned. Valid until release().
  std::span<const float> values(size_t unit, StateKind kind) const;
  // The bytes of tensor `index` of carried_tensors(). Valid until release().
  std::span<const std::byte> carried(size_t index) const;
  // Releases held states. Call from the thread that has the values, or later.
  void release();

 private:
  enum class Way { kFromGpu, kFromHost, kHeld };
  struct Part {
    size_t unit = 0;
    StateKind kind = StateKind::kMaster;
    Way way = Way::kFromHost;
    int64_t begin = 0;  // in memory_, in elements; if copied
    int64_t count = 0;
  };

  // A carried tensor's copy.
  struct CarriedPart {
    int64_t begin = 0;  // in memory_, in elements
    int64_t bytes = 0;
  };

  void take_from_gpu(const std::vector<at::Tensor>& carried);
  void take_from_host(const std::vector<at::Tensor>& carried);
  void wait_for_carried();

  parallel::ZeroEngine& engine_;
  at::Device device_;
  int copy_threads_;
  std::vector<Part> parts_;
  std::vector<std::optional<size_t>> part_of_unit_;  // the first of its states in parts_
  std::vector<CarriedPart> carried_;
  std::vector<parallel::StateHold> holds_;  // by unit, until release()
  int64_t copied_bytes_ = 0;
  int64_t held_bytes_ = 0;
  bool pinned_ = false;
  std::future<at::Tensor> allocation_;
  at::Tensor memory_;
  std::optional<c10::cuda::CUDAStream> stream_;
  c10::cuda::CUDAEvent carried_copied_;  // from the GPU
  c10::cuda::CUDAEvent copied_;          // all from the GPU
  c10::cuda::CUDAEvent wait_began_{cudaEventDefault};
  c10::cuda::CUDAEvent wait_ended_{cudaEventDefault};
  bool gpu_waited_ = false;  // since begin()
  std::shared_future<void> from_host_;
};

}  // namespace mpzero
