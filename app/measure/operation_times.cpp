#include "app/measure/operation_times.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace mpzero::measure {
namespace {

using Clock = std::chrono::steady_clock;

// A point in time on the host or, on a GPU, on the current stream.
class Mark {
 public:
  void record(bool on_gpu) {
    if (on_gpu) event_.record();
    host_ = Clock::now();
  }
  // Requires that the device has reached both marks.
  double seconds_until(const Mark& end, bool on_gpu) const {
    return on_gpu ? event_.elapsed_time(end.event_) * 1e-3 : std::chrono::duration<double>(end.host_ - host_).count();
  }

 private:
  c10::cuda::CUDAEvent event_{cudaEventDefault};  // created when first recorded
  Clock::time_point host_;
};

struct Call {
  model::Operation operation;
  std::optional<size_t> caller;  // operation that contains this one
  Mark begin{}, end{};
};

// Marks the beginning and end of each operation of the current thread during the observer's lifetime.
class Observer final : public model::OperationObserver {
 public:
  Observer(std::deque<Call>& calls, bool on_gpu)
      : calls_(calls), on_gpu_(on_gpu), before_(std::exchange(current(), this)) {}
  ~Observer() override { current() = before_; }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  void begin(const model::Operation& operation) override {
    calls_.push_back({.operation = operation, .caller = open_});
    open_ = calls_.size() - 1;
    calls_.back().begin.record(on_gpu_);
  }
  void end() override {
    calls_[*open_].end.record(on_gpu_);
    open_ = calls_[*open_].caller;
  }

 private:
  std::deque<Call>& calls_;
  const bool on_gpu_;
  OperationObserver* const before_;
  std::optional<size_t> open_;
};

struct Run {
  std::deque<Call> calls{};
  Mark before{}, begin{}, end{};  // no work between `before` and `begin`
};

// Collects the time per call of each operation, one sample per run.
class Samples {
 public:
  void add(const Run& run, bool on_gpu, double overhead) {
    std::vector<MarkedCall> marked;
    for (const Call& call : run.calls) marked.push_back({call.begin.seconds_until(call.end, on_gpu), call.caller});
    const std::vector<double> own = own_seconds(marked, overhead);
    std::map<size_t, std::pair<double, double>> sums;  // seconds and calls, by index
    for (size_t i = 0; i < own.size(); ++i) {
      auto& [seconds, calls] = sums[index_of(run.calls[i].operation)];
      seconds += own[i];
      ++calls;
    }
    for (const auto& [index, sum] : sums) {
      seconds_[index].push_back(sum.first / sum.second);
      times_[index].calls = sum.second;
    }
  }

  std::vector<OperationTime> times(at::Device device) {
    for (size_t i = 0; i < times_.size(); ++i) times_[i].timing = timing_of(std::move(seconds_[i]), device);
    return std::move(times_);
  }

 private:
  size_t index_of(const model::Operation& operation) {
    const auto [found, is_new] = indices_.emplace(describe(operation), times_.size());
    if (is_new) {
      times_.push_back({.operation = operation, .timing = {}});
      seconds_.emplace_back();
    }
    return found->second;
  }

  std::map<std::string, size_t> indices_;
  std::vector<OperationTime> times_;
  std::vector<std::vector<double>> seconds_;
};

}  // namespace

std::vector<double> own_seconds(const std::vector<MarkedCall>& calls, double overhead) {
  std::vector<double> own(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    own[i] += calls[i].seconds - overhead;
    if (calls[i].caller) own[*calls[i].caller] -= calls[i].seconds + overhead;
  }
  for (double& seconds : own) seconds = std::max(0.0, seconds);
  return own;
}

std::vector<OperationTime> operation_times(at::Device device, const Effort& effort, int64_t evicted_bytes,
                                           const std::function<void()>& unit) {
  const bool on_gpu = device.is_cuda();
  const int64_t evicted = evicted_bytes / static_cast<int64_t>(sizeof(float));
  const at::Tensor others = at::ones({evicted}, at::TensorOptions().dtype(at::kFloat).device(device));
  std::list<Run> runs;
  const auto run = [&](double ahead) {
    if (on_gpu) sleep_on_gpu(ahead);
    at::sum(others);
    Run& made = runs.emplace_back();
    made.before.record(on_gpu);
    made.begin.record(on_gpu);
    {
      const Observer observer(made.calls, on_gpu);
      unit();
    }
    made.end.record(on_gpu);
  };
  const auto wait = [&] {
    if (on_gpu) c10::cuda::device_synchronize();
  };

  wait();
  run(0);
  wait();
  const Run& first = runs.back();
  const double host = first.begin.seconds_until(first.end, false), taken = first.begin.seconds_until(first.end, on_gpu);
  const double ahead = on_gpu ? host_lead(host, taken) : 0;
  for (int left = repeats_for(effort, taken + ahead); left > 1; --left) run(ahead);
  wait();

  std::vector<double> idle;
  if (on_gpu) {
    if (runs.size() > 1) runs.pop_front();  // the device waited for the host
    for (const Run& made : runs) idle.push_back(made.before.seconds_until(made.begin, true));
  }
  const double overhead = idle.empty() ? 0 : timing_of(std::move(idle), device).seconds;
  Samples samples;
  for (const Run& made : runs) samples.add(made, on_gpu, overhead);
  return samples.times(device);
}

}  // namespace mpzero::measure
