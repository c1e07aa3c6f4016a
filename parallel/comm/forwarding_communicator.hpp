#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// Base of communicators that observe another one: forwards everything except the collectives.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}
  ForwardingCommunicator(const ForwardingCommunicator&) = delete;
  ForwardingCommunicator& operator=(const ForwardingCommunicator&) = delete;

  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  at::Tensor buffer(int64_t numel, const at::TensorOptions& options) override {
    return communicator_->buffer(numel, options);
  }
  int64_t reserve_reduce_scatter(int64_t numel, const at::TensorOptions& options) override {
    return communicator_->reserve_reduce_scatter(numel, options);
  }
  std::optional<std::string> asynchronous_error() override { return communicator_->asynchronous_error(); }
  void abort() override { communicator_->abort(); }

 protected:
  Communicator& communicator() { return *communicator_; }

 private:
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace mpzero::parallel
