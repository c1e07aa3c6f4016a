#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "parallel/comm/communicator.hpp"
#include "parallel/streams/streams.hpp"

namespace mpzero::parallel {

// A collective, and the work on its result that the current stream has when this is made.
class PendingExchange final : public PendingCollective {
 public:
  PendingExchange(std::unique_ptr<PendingCollective> collective, c10::Device device)
      : collective_(std::move(collective)), device_(device) {
    if (!has_streams(device)) return;
    done_.emplace(device.type());
    done_->record(current_stream(device));
  }
  // The collective's own wait comes first, so that its time is measured as such.
  void wait() override {
    collective_->wait();
    if (done_) done_->block(current_stream(device_));
  }

 private:
  std::unique_ptr<PendingCollective> collective_;
  c10::Device device_;
  std::optional<c10::Event> done_;
};

}  // namespace mpzero::parallel
