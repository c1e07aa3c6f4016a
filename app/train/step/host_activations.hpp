#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace mpzero {

// A stack of tensors, one for each layer, that are offloaded to host memory between forward and backward: inputs
// (Recompute::kHost) or attention outputs (Recompute::kHostAttention). The last two tensors stay on the device. Copies
// run on a separate stream and overlap with the layers.
//
// Transfers of tensor n:
//   put(n)      ──> copied to the host, unless it is one of the micro-batch's last two tensors
//   put(n + 2)  ──> device memory released; kernels queued later run after the copy and may reuse the memory
//   take(n + 1) ──> copied back to the device after all kernels queued so far
//   take(n)     ──> returned to the caller; kernels queued later run after the copy
class HostActivations {
 public:
  // `layers`: number of tensors per micro-batch. `bytes`: maximum size of a tensor. Allocates host memory for all
  // tensors except the last two. If the memory is not `pinned`, copies block the host.
  HostActivations(at::Device device, size_t layers, int64_t bytes, bool pinned);
  ~HostActivations();
  HostActivations(const HostActivations&) = delete;
  HostActivations& operator=(const HostActivations&) = delete;

  // Pushes a tensor: a layer's input before its forward pass, or a layer's attention output after its forward pass. `x`
  // must be dense and ready on the current stream. The caller must release `x` after the layer's forward pass.
  void put(at::Tensor x);
  // Pops the last tensor, with the bits, dtype, sizes and strides of the tensor passed to put(). Must be called before
  // the layer's backward pass.
  at::Tensor take();

  // Returns the allocated host memory in bytes.
  int64_t bytes() const;

 private:
  struct Entry {
    at::ScalarType type;
    std::vector<int64_t> sizes, strides;
    at::Tensor on_device;  // undefined if the tensor is only on the host
  };

  // Runs copy() on the copy stream after the work queued on the current stream, and records an event for `layer`.
  template <typename Copy>
  void copy_after_current(size_t layer, const Copy& copy);
  // Makes the current stream wait for the last copy of `layer`.
  void wait_for_copy(size_t layer);
  void fetch(size_t layer);
  at::Tensor on_host(size_t layer) const;

  at::Device device_;
  size_t layers_;
  std::vector<at::Tensor> buffers_;                // one per layer
  std::optional<c10::Stream> stream_;              // copy stream; std::nullopt on devices without streams
  std::vector<std::optional<c10::Event>> copied_;  // one per layer; end of the last copy
  std::vector<Entry> stack_;
};

}  // namespace mpzero
