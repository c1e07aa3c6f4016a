#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace mpzero {

// The inputs of layers that wait in host memory between forward and backward (Recompute::kHost): a stack that put()
// grows in the forward and take() shrinks in the backward. The last two inputs are on the device; copies run on a
// stream of their own, beside the layers; the host does not wait for them.
//
//   put(n) ──> on the device, copied to the host   (unless it is one of the micro-batch's last two)
//   put(n + 2) ──> on the host: its memory is reused by kernels queued after its copy
//   take(n + 1) ──> fetched: copied back, after the kernels queued so far
//   take(n) ──> the caller's: kernels queued from now on follow the copy
class HostActivations {
 public:
  // `inputs` of each micro-batch, of at most `numel` elements each. Allocates memory for all but the last two, `pinned`
  // or not; copies of a GPU with memory that is not pinned hold up the host.
  HostActivations(at::Device device, size_t inputs, int64_t numel, at::ScalarType type, bool pinned);
  ~HostActivations();
  HostActivations(const HostActivations&) = delete;
  HostActivations& operator=(const HostActivations&) = delete;

  // Before the layer's forward: `x` is contiguous, and complete for work queued on the current stream. The caller keeps
  // no reference beyond that forward.
  void put(at::Tensor x);
  // Before the layer's backward: the input that was put last and not taken yet, with the same bits.
  at::Tensor take();

  // In host memory.
  int64_t bytes() const;

 private:
  struct Input {
    std::vector<int64_t> sizes;
    at::Tensor on_device;  // undefined: on the host
  };

  // Runs copy() on the copy stream, after the work queued on the current one, and marks its end for `input`.
  template <typename Copy>
  void copy_after_current(size_t input, const Copy& copy);
  // Work queued on the current stream from now on follows the last copy of `input`.
  void wait_for_copy(size_t input);
  void fetch(size_t input);
  at::Tensor on_host(size_t input) const;

  at::Device device_;
  size_t inputs_;
  std::vector<at::Tensor> buffers_;                // by input, [numel]
  std::optional<c10::Stream> stream_;              // of a device with streams
  std::vector<std::optional<c10::Event>> copied_;  // by input: the end of its last copy
  std::vector<Input> stack_;
};

}  // namespace mpzero
