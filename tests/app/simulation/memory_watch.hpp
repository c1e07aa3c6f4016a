#pragma once

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "app/simulation/unit_record.hpp"

namespace mpzero::plan {

// Tracks the current and peak bytes of CPU tensors that this thread allocates.
class MemoryWatch {
 public:
  MemoryWatch() : reporter_(std::make_shared<Reporter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, reporter_) {}
  int64_t now() const { return reporter_->now; }
  // Returns the peak since the last call.
  int64_t take_peak() { return std::exchange(reporter_->peak, reporter_->now); }
  UnitRecorder::RealDevice cpu() {
    return {at::kCPU, [this] { return now(); }, [this] { return take_peak(); }};
  }

 private:
  struct Reporter final : c10::MemoryReportingInfoBase {
    int64_t now = 0, peak = 0;
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      now += bytes;
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
  };
  std::shared_ptr<Reporter> reporter_;
  c10::DebugInfoGuard guard_;
};

// Limits ATen to one thread during the object's lifetime: with several threads, the peak depends on whether their
// allocations overlap in time.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = at::get_num_threads();
};

}  // namespace mpzero::plan
