#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "base/optimizer_state.hpp"
#include "parallel/zero_engine.hpp"

namespace mpzero {

// A copy of this rank's optimizer states in host memory, taken beside the forward and backward pass that follows: the
// states rest until the next update. From a GPU they come down on a stream of their own into pinned memory, from host
// memory a few threads copy them.
//
//   begin() ──> [forward, backward] ──> before_update() ──> [update]
//      └──> wait(), from another thread ──> values()
class StateSnapshot {
 public:
  // `writes[u]`: whether this rank's share of unit u is wanted. `copy_threads`: for states in host memory. The engine
  // outlives this.
  StateSnapshot(const parallel::ZeroEngine& engine, std::vector<bool> writes, at::Device device, int copy_threads);
  ~StateSnapshot();
  StateSnapshot(const StateSnapshot&) = delete;
  StateSnapshot& operator=(const StateSnapshot&) = delete;

  // Of host memory that a snapshot takes.
  int64_t bytes() const { return bytes_; }
  // Takes that memory, so that begin() need not, which takes seconds for many GiB: touches and registers it on a thread
  // of its own.
  void allocate();

  // Starts to copy the states as they are behind the updates so far. Not before the last snapshot was waited for and
  // its values are no longer needed.
  void begin();
  // Before the engine's next update: returns as soon as updates do not touch what is still being copied. On a GPU the
  // update is made to wait, not the caller.
  void before_update();
  // Returns when all values are there. From any one thread.
  void wait();
  // Stay valid until the next begin(). At multiples of a page in memory.
  std::span<const float> values(size_t unit, StateKind kind) const;

 private:
  struct Part {
    size_t unit = 0;
    StateKind kind = StateKind::kMaster;
    int64_t begin = 0;  // in memory_, in elements
    int64_t count = 0;
  };

  void copy_on_host();

  const parallel::ZeroEngine& engine_;
  at::Device device_;
  int copy_threads_;
  std::vector<Part> parts_;
  std::vector<std::optional<size_t>> part_of_unit_;  // the first of its three
  int64_t bytes_ = 0;
  bool pinned_ = false;
  std::future<at::Tensor> allocation_;
  at::Tensor memory_;
  std::optional<c10::cuda::CUDAStream> stream_;
  at::cuda::CUDAEvent copied_;  // from the GPU
  std::vector<at::Tensor> on_host_;
  std::vector<Part> on_host_parts_;
  std::shared_future<void> host_copy_;
};

}  // namespace mpzero
