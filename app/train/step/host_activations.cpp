#include "app/train/step/host_activations.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "model/layer_activations.hpp"
#include "parallel/host/host_memory.hpp"
#include "parallel/streams/streams.hpp"

namespace mpzero {
namespace {

constexpr auto kOnDevice = static_cast<size_t>(model::kInputsOnDevice);

}  // namespace

HostActivations::HostActivations(at::Device device, size_t inputs, int64_t numel, at::ScalarType type, bool pinned)
    : device_(device), inputs_(inputs) {
  const std::vector<int64_t> sizes(inputs - std::min(inputs, kOnDevice), numel);
  if (is_simulated(device)) {
    for (const int64_t size : sizes) buffers_.push_back(parallel::host_tensor_without_memory(size, type));
  } else {
    buffers_ = parallel::host_tensors(sizes, type, pinned && device.is_cuda());
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
  const size_t input = stack_.size();
  if (input == inputs_) throw_failure("a micro-batch has more than {} layer inputs", inputs_);
  if (!x.is_contiguous()) throw_failure("the layer input is not contiguous");
  if (input >= kOnDevice) {
    const size_t oldest = input - kOnDevice;
    wait_for_copy(oldest);
    stack_[oldest].on_device.reset();
  }
  stack_.push_back({.sizes = x.sizes().vec(), .on_device = std::move(x)});
  if (input >= buffers_.size()) return;
  const at::Tensor& source = stack_.back().on_device;
  if (source.scalar_type() != buffers_[input].scalar_type()) {
    throw_failure("the layer input is {}, but its host buffer is {}", c10::toString(source.scalar_type()),
                  c10::toString(buffers_[input].scalar_type()));
  }
  if (source.numel() > buffers_[input].numel()) {
    throw_failure("the layer input has {} elements; the host buffer has only {}", source.numel(),
                  buffers_[input].numel());
  }
  copy_after_current(input, [&] { on_host(input).copy_(source, /*non_blocking=*/true); });
}

at::Tensor HostActivations::take() {
  if (stack_.empty()) throw_failure("the stack of layer inputs is empty");
  const size_t input = stack_.size() - 1;
  if (!stack_[input].on_device.defined()) fetch(input);
  wait_for_copy(input);
  at::Tensor x = std::move(stack_[input].on_device);
  stack_.pop_back();
  if (input > 0 && !stack_[input - 1].on_device.defined()) fetch(input - 1);
  return x;
}

int64_t HostActivations::bytes() const {
  return std::accumulate(buffers_.begin(), buffers_.end(), int64_t{0}, [](int64_t sum, const at::Tensor& buffer) {
    return sum + static_cast<int64_t>(buffer.nbytes());
  });
}

void HostActivations::fetch(size_t input) {
  const at::Tensor source = on_host(input);
  at::Tensor& x = stack_[input].on_device;
  // Queued kernels on the current stream may still use this memory, so the copy must run after them.
  x = at::empty(stack_[input].sizes, source.options().device(device_));
  copy_after_current(input, [&] { x.copy_(source, /*non_blocking=*/true); });
}

at::Tensor HostActivations::on_host(size_t input) const {
  const std::vector<int64_t>& sizes = stack_[input].sizes;
  const int64_t numel = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  return buffers_[input].narrow(0, 0, numel).view(sizes);
}

template <typename Copy>
void HostActivations::copy_after_current(size_t input, const Copy& copy) {
  if (!stream_) return copy();
  parallel::follow_current_stream(*stream_);
  const c10::StreamGuard on_stream(*stream_);
  copy();
  if (!copied_[input]) copied_[input].emplace(device_.type());
  copied_[input]->record(*stream_);
}

void HostActivations::wait_for_copy(size_t input) {
  if (input < copied_.size() && copied_[input]) copied_[input]->block(parallel::current_stream(device_));
}

}  // namespace mpzero
