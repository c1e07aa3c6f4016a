#include "app/simulation/simulated_backend.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>

#include "app/simulation/simulated_device.hpp"

namespace mpzero::plan {
namespace {

constexpr auto kKeys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);

SimulatedDevice& device() { return SimulatedDevice::current(); }
c10::Stream as_stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, SimulatedDevice::device(), id); }

// Implements streams and events.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kSimulatedDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return SimulatedDevice::device(); }
  c10::Device getDevice() const override { return SimulatedDevice::device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return as_stream(device().current_stream()); }
  c10::Stream getDefaultStream(c10::Device) const override { return as_stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return as_stream(device().new_stream()); }
  c10::Stream getNewStream(c10::Device, int) const override { return as_stream(device().new_stream()); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return as_stream(device().exchange_stream(stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return device().clock(stream.id()) <= device().host_now();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    device().host_waits_until(device().clock(stream.id()));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = std::make_unique<double>().release();
    time_of(*event) = device().clock(stream.id());
    device().host_calls();
  }
  void block(void* event, const c10::Stream& stream) const override {
    device().wait_until(stream.id(), time_of(event));
    device().host_calls();
  }
  bool queryEvent(void* event) const override { return time_of(event) <= device().host_now(); }
  void synchronizeEvent(void* event) const override { device().host_waits_until(time_of(event)); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    const std::unique_ptr<double> owner(static_cast<double*>(event));
  }

 private:
  static double& time_of(void* event) { return *static_cast<double*>(event); }
};

// Allocator that returns unmapped addresses and counts bytes.
class NoMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const size_t rounded = rounded_up(bytes);
    simulated_memory().allocate(static_cast<int64_t>(rounded));
    // Addresses are unique within the process.
    auto* address = reinterpret_cast<void*>(next_);
    next_ += (rounded + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
    // The context pointer stores the number of bytes.
    return {address, reinterpret_cast<void*>(rounded), &free, SimulatedDevice::device()};
  }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  // Memory cannot be mapped at these addresses, so an access crashes the process.
  static constexpr uintptr_t kFirst = uintptr_t{1} << 56;
  static constexpr size_t kAlignment = 512;

  // Rounds like PyTorch's CUDA allocator with expandable segments; the CPU allocator does not round.
  static size_t rounded_up(size_t bytes) {
    if (simulated_target().type != c10::DeviceType::CUDA) return bytes;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  static void free(void* bytes) {
    simulated_memory().allocate(-static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes)));
  }

  uintptr_t next_ = kFirst;
};

c10::Allocator* no_memory() {
  static NoMemory allocator;
  return &allocator;
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, no_memory(), kKeys, dtype.value_or(at::kFloat), format);
}

at::Tensor empty_with_strides(at::IntArrayRef size, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                              std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, strides, no_memory(), kKeys, dtype.value_or(at::kFloat));
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }
at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef strides,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, strides, offset);
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef strides) {
  return at::native::as_strided_tensorimpl(self, size, strides, self.storage_offset());
}

// Real devices run silu_backward as a single kernel, but ATen's fallback consists of several operators.
at::Tensor silu_backward(const at::Tensor&, const at::Tensor& self) {
  SimulatedDevice& here = device();
  here.queue(Work::kElementwise, "operator", here.costs().memory(3 * static_cast<int64_t>(self.nbytes())));
  return at::empty(self.sizes(), self.options());
}

// ATen cannot infer the shape of index_select without values.
at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[static_cast<size_t>(dim < 0 ? dim + self.dim() : dim)] = index.numel();
  const at::Tensor selected = at::empty(sizes, self.options());
  SimulatedDevice& here = device();
  here.queue(Work::kElementwise, "operator", here.costs().memory(2 * static_cast<int64_t>(selected.nbytes())));
  return selected;
}

// Copies between host and device, or within the device. Blocking copies complete before the function returns.
at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  SimulatedDevice& here = device();
  const auto bytes = static_cast<int64_t>(source.nbytes());
  if (self.is_cpu()) {
    here.queue(Work::kDown, "copy to host", here.costs().down(bytes), &here.down());
  } else if (source.is_cpu()) {
    here.queue(Work::kUp, "copy to device", here.costs().up(bytes), &here.up());
  } else {
    here.queue(Work::kElementwise, "copy", here.costs().memory(bytes + static_cast<int64_t>(self.nbytes())));
    return self;
  }
  if (!non_blocking) here.host_waits_until(here.clock(here.current_stream()));
  return self;
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

at::Tensor without_values(const at::Tensor& tensor, at::Device device) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
}

// Fallback for all other operators, which read and write their tensors. ATen's meta kernels determine the shapes of new
// tensors.
void any_operator(const c10::OperatorHandle& op, c10::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t first = stack->size() - schema.arguments().size();
  int64_t bytes = 0;
  std::optional<at::Tensor> written;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::IValue& value = (*stack)[first + i];
    const auto add = [&](const at::Tensor& tensor) {
      if (tensor.defined() && !tensor.is_cpu()) bytes += static_cast<int64_t>(tensor.nbytes());
    };
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    }
    if (value.isTensor() && writes(schema.arguments()[i])) written = value.toTensor();
  }
  SimulatedDevice& here = device();
  if (written) {
    torch::jit::drop(*stack, schema.arguments().size());
    if (!schema.returns().empty()) torch::jit::push(*stack, *written);
  } else {
    const auto to_meta = [](const at::Tensor& tensor) {
      return tensor.defined() ? without_values(tensor, at::kMeta) : tensor;
    };
    for (size_t i = first; i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (value.isTensor()) value = to_meta(value.toTensor());
      if (value.isDevice()) value = at::Device(at::kMeta);
      if (!value.isTensorList()) continue;
      std::vector<at::Tensor> tensors = value.toTensorVector();
      std::transform(tensors.begin(), tensors.end(), tensors.begin(), to_meta);
      value = tensors;
    }
    op.callBoxedForDispatchKey(c10::DispatchKey::Meta, *stack);
    for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
      c10::IValue& value = (*stack)[i];
      if (!value.isTensor()) continue;
      value = without_values(value.toTensor(), SimulatedDevice::device());
      bytes += static_cast<int64_t>(value.toTensor().nbytes());
    }
  }
  here.queue(Work::kElementwise, "operator", here.costs().memory(bytes));
}

}  // namespace

SimulatedMemory& simulated_memory() {
  static SimulatedMemory memory;
  return memory;
}

void register_simulated_backend() {
  static const bool registered = [] {
    // PyTorch references both objects until the process exits.
    static const Guard guard;
    c10::impl::registerDeviceGuard(kSimulatedDevice, &guard);
    static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    aten.impl("empty.memory_format", empty);
    aten.impl("empty_strided", empty_with_strides);
    aten.impl("view", view);
    aten.impl("as_strided", as_strided);
    aten.impl("_reshape_alias", reshape_alias);
    aten.impl("silu_backward", silu_backward);
    aten.impl("index_select", index_select);
    aten.impl("copy_", copy);
    static torch::Library rest(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    rest.fallback(torch::CppFunction::makeFromBoxedFunction<&any_operator>());
    return true;
  }();
  static_cast<void>(registered);
}

}  // namespace mpzero::plan
