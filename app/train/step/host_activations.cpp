#include "app/train/step/host_activations.hpp"

#include <ATen/ops/empty_strided.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "model/layer_activations.hpp"
#include "parallel/host/host_memory.hpp"
#include "parallel/streams/streams.hpp"

namespace mpzero {
namespace {

constexpr auto kOnDevice = static_cast<size_t>(model::kLayersOnDevice);

}  // namespace

HostActivations::HostActivations(at::Device device, size_t layers, int64_t bytes, bool pinned)
    : device_(device), layers_(layers) {
  const std::vector<int64_t> sizes(layers - std::min(layers, kOnDevice), bytes);
  if (is_simulated(device)) {
    for (const int64_t size : sizes) buffers_.push_back(parallel::host_tensor_without_memory(size, at::kByte));
  } else {
    buffers_ = parallel::host_tensors(sizes, at::kByte, pinned && device.is_cuda());
  }
  if (parallel::has_streams(device)) stream_ = parallel::new_stream(device);
  copied_.resize(buffers_.size());
}

HostActivations::~HostActivations() {
  try {
    for (std::optional<c10::Event>& event : copied_) {
      if (event) event->synchronize();
    }
  } catch (const c10::Error&) {
    return;  // the device has failed, so no copy is in progress
  }
}

void HostActivations::put(at::Tensor x) {
  const size_t layer = stack_.size();
  if (layer == layers_) throw_failure("a micro-batch has activations of more than {} layers", layers_);
  if (!x.is_non_overlapping_and_dense()) throw_failure("the activation is not dense");
  if (layer >= kOnDevice) {
    const size_t oldest = layer - kOnDevice;
    wait_for_copy(oldest);
    stack_[oldest].on_device.reset();
  }
  stack_.push_back({x.scalar_type(), x.sizes().vec(), x.strides().vec(), std::move(x)});
  if (layer >= buffers_.size()) return;
  const at::Tensor& source = stack_.back().on_device;
  if (source.nbytes() > buffers_[layer].nbytes()) {
    throw_failure("the activation has {} bytes; the host buffer has only {}", source.nbytes(),
                  buffers_[layer].nbytes());
  }
  copy_after_current(layer, [&] { on_host(layer).copy_(source, /*non_blocking=*/true); });
}

at::Tensor HostActivations::take() {
  if (stack_.empty()) throw_failure("the stack of activations is empty");
  const size_t layer = stack_.size() - 1;
  if (!stack_[layer].on_device.defined()) fetch(layer);
  wait_for_copy(layer);
  at::Tensor x = std::move(stack_[layer].on_device);
  stack_.pop_back();
  if (layer > 0 && !stack_[layer - 1].on_device.defined()) fetch(layer - 1);
  return x;
}

int64_t HostActivations::bytes() const {
  return std::accumulate(buffers_.begin(), buffers_.end(), int64_t{0}, [](int64_t sum, const at::Tensor& buffer) {
    return sum + static_cast<int64_t>(buffer.nbytes());
  });
}

void HostActivations::fetch(size_t layer) {
  const at::Tensor source = on_host(layer);
  at::Tensor& x = stack_[layer].on_device;
  // Queued kernels on the current stream may still use this memory, so the copy must run after them.
  x = at::empty_strided(source.sizes(), source.strides(), source.options().device(device_));
  copy_after_current(layer, [&] { x.copy_(source, /*non_blocking=*/true); });
}

at::Tensor HostActivations::on_host(size_t layer) const {
  const Entry& entry = stack_[layer];
  return buffers_[layer].view(entry.type).as_strided(entry.sizes, entry.strides);
}

template <typename Copy>
void HostActivations::copy_after_current(size_t layer, const Copy& copy) {
  if (!stream_) return copy();
  parallel::follow_current_stream(*stream_);
  const c10::StreamGuard on_stream(*stream_);
  copy();
  if (!copied_[layer]) copied_[layer].emplace(device_.type());
  copied_[layer]->record(*stream_);
}

void HostActivations::wait_for_copy(size_t layer) {
  if (layer < copied_.size() && copied_[layer]) copied_[layer]->block(parallel::current_stream(device_));
}

}  // namespace mpzero
