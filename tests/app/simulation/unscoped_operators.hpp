#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/operation/operation.hpp"

namespace mpzero::plan {

// Counts the bytes that ATen operators outside of any OperationScope read and write, by operator, while this thread's
// operations are observed. Views and allocations move no bytes.
class UnscopedOperators {
 public:
  UnscopedOperators()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                               .needsInputs(true)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {
    current() = this;
  }
  ~UnscopedOperators() {
    at::removeCallback(handle_);
    current() = nullptr;
  }
  UnscopedOperators(const UnscopedOperators&) = delete;
  UnscopedOperators& operator=(const UnscopedOperators&) = delete;

  std::map<std::string, double> bytes;

 private:
  struct Call : at::ObserverContext {
    std::vector<at::Tensor> inputs;
    bool counts = false;
  };

  static UnscopedOperators*& current() {
    thread_local UnscopedOperators* object = nullptr;
    return object;
  }
  static std::vector<at::Tensor> tensors(c10::ArrayRef<const c10::IValue> values) {
    std::vector<at::Tensor> all;
    for (const c10::IValue& value : values) {
      if (value.isTensor()) all.push_back(value.toTensor());
      if (!value.isTensorList()) continue;
      for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(tensor);
    }
    std::erase_if(all, [](const at::Tensor& tensor) { return !tensor.defined() || tensor.is_meta(); });
    return all;
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    auto call = std::make_unique<Call>();
    // Only the outermost operator counts, because operators may call other operators.
    call->counts = current()->depth_++ == 0 && !std::string_view(function.name()).starts_with("mpzero::") &&
                   model::OperationObserver::current() != nullptr;
    if (call->counts) call->inputs = tensors(function.inputs());
    return call;
  }
  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    const auto& call = static_cast<const Call&>(*context);
    --current()->depth_;
    const std::string name = function.name();
    if (!call.counts || name.starts_with("aten::empty") || name.starts_with("aten::new_empty")) return;
    const std::vector<c10::IValue> values = function.outputs();
    const std::vector<at::Tensor> outputs = tensors(c10::ArrayRef<const c10::IValue>(values.data(), values.size()));
    const auto is_view = [&](const at::Tensor& output) {
      return std::ranges::any_of(call.inputs, [&](const at::Tensor& input) { return output.is_alias_of(input); });
    };
    if (!name.ends_with('_') && std::ranges::all_of(outputs, is_view)) return;
    for (const auto* all : {&call.inputs, &outputs}) {
      for (const at::Tensor& tensor : *all) {
        current()->bytes[name] += static_cast<double>(tensor.numel()) * static_cast<double>(tensor.itemsize());
      }
    }
  }

  int depth_ = 0;
  at::CallbackHandle handle_;
};

}  // namespace mpzero::plan
