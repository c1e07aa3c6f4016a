#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace mpzero {

// A stack of layer inputs that are offloaded to host memory between forward and backward (Recompute::kHost). The last
// two inputs stay on the device. Copies run on a separate stream and overlap with the layers. The host does not wait
// for copies.
//
// Transfers of input n:
//   put(n)      ──> copied to the host, unless it is one of the micro-batch's last two inputs
//   put(n + 2)  ──> device memory released; kernels queued later run after the copy and may reuse the memory
//   take(n + 1) ──> copied back to the device after all kernels queued so far
//   take(n)     ──> returned to the caller; kernels queued later run after the copy
class HostActivations {
 public:
  // `inputs`: number of inputs per micro-batch. `numel`: maximum number of elements of an input. Allocates host memory
  // for all inputs except the last two. If the memory is not `pinned`, copies block the host.
  HostActivations(at::Device device, size_t inputs, int64_t numel, at::ScalarType type, bool pinned);
  ~HostActivations();
  HostActivations(const HostActivations&) = delete;
  HostActivations& operator=(const HostActivations&) = delete;

  // Pushes a layer's input. Call before the layer's forward. `x` must be contiguous and ready on the current stream.
  // The caller must release `x` after the layer's forward.
  void put(at::Tensor x);
  // Pops the last input, bit-identical. Call before the layer's backward.
  at::Tensor take();

  // Host memory in bytes.
  int64_t bytes() const;

 private:
  struct Input {
    std::vector<int64_t> sizes;
    at::Tensor on_device;  // undefined if the input is only on the host
  };

  // Runs copy() on the copy stream after the work queued on the current stream, and records an event for `input`.
  template <typename Copy>
  void copy_after_current(size_t input, const Copy& copy);
  // Makes the current stream wait for the last copy of `input`.
  void wait_for_copy(size_t input);
  void fetch(size_t input);
  at::Tensor on_host(size_t input) const;

  at::Device device_;
  size_t inputs_;
  std::vector<at::Tensor> buffers_;                // by input, shape [numel]
  std::optional<c10::Stream> stream_;              // copy stream; std::nullopt on devices without streams
  std::vector<std::optional<c10::Event>> copied_;  // by input; end of the last copy
  std::vector<Input> stack_;
};

}  // namespace mpzero
