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

// What compression between nodes carries of all units, unit by unit, the gradients' residual before the parameters.
// `values`: of each unit.
std::vector<at::Tensor> carried_tensors(std::span<const parallel::Carried> values);

// This rank's optimizer states as they are at one moment, in host memory, while training continues. States that the
// host updates while a GPU trains are not copied but held: the next update writes to spare memory. Others are copied
// during the forward and backward pass that follows, since they do not change until the next update: from a GPU on
// their own stream into pinned memory, from host memory by a few threads. So is what compression between nodes carries,
// and first: the next sum between nodes changes the residuals of gradients, and waits for their copy.
//
//   begin() ──> [forward, backward] ──> before_update() ──> [update]
//      └──> wait(), from another thread ──> values() ──> release()
class StateSnapshot {
 public:
  // What is wanted: `writes[u]`, whether this rank's share of unit u; `carried`, what compression carries, the same on
  // all ranks. `copy_threads`: for states in host memory. The engine outlives this.
  StateSnapshot(parallel::ZeroEngine& engine, std::vector<bool> writes, bool carried, at::Device device,
                int copy_threads);
  ~StateSnapshot();
  StateSnapshot(const StateSnapshot&) = delete;
  StateSnapshot& operator=(const StateSnapshot&) = delete;

  // Of host memory that a snapshot takes.
  int64_t bytes() const { return copied_bytes_ + held_bytes_; }
  // Takes that memory, so that begin() need not, which takes seconds for many GiB: touches and registers it on a thread
  // of its own.
  void allocate();

  // Starts to take the states as they are after the updates so far. Not before the last snapshot was released.
  // Collective if what is carried is wanted.
  void begin();
  // Before the engine's next update: returns as soon as updates do not touch what is still being taken. On a GPU the
  // update is made to wait, not the caller.
  void before_update();
  // How long the GPU has stood still for that since begin(). Not before wait() has returned.
  double gpu_seconds_waited();
  // Returns when all values are there. From any one thread.
  void wait();
  // At multiples of a page in memory. Stay valid until release().
  std::span<const float> values(size_t unit, StateKind kind) const;
  // The same of the tensor `index` of those that carried_tensors() lists.
  std::span<const std::byte> carried(size_t index) const;
  // Lets go of what is held. From the thread that has the values, or later.
  void release();

 private:
  enum class Way { kFromGpu, kFromHost, kHeld };
  struct Part {
    size_t unit = 0;
    StateKind kind = StateKind::kMaster;
    Way way = Way::kFromHost;
    int64_t begin = 0;  // in memory_, in elements; of what is copied
    int64_t count = 0;
  };

  // Bytes that are copied.
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
  std::vector<std::optional<size_t>> part_of_unit_;  // the first of its states
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
