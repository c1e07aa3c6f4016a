#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <utility>

#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// A collective, and the work on its result that the current stream has when this is made.
class PendingExchange final : public PendingCollective {
 public:
  PendingExchange(std::unique_ptr<PendingCollective> collective, bool on_device)
      : collective_(std::move(collective)), on_device_(on_device) {
    if (on_device_) done_.record(c10::cuda::getCurrentCUDAStream());
  }
  // The collective's own wait comes first, so that its time is measured as such.
  void wait() override {
    collective_->wait();
    if (on_device_) done_.block(c10::cuda::getCurrentCUDAStream());
  }

 private:
  std::unique_ptr<PendingCollective> collective_;
  bool on_device_;
  at::cuda::CUDAEvent done_;
};

}  // namespace mpzero::parallel
