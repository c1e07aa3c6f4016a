#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/simulation/busy_link.hpp"
#include "app/simulation/shared_cores.hpp"
#include "app/simulation/shared_memory.hpp"
#include "parallel/streams/streams.hpp"

namespace mpzero::plan {

// Kinds of work, for the report.
enum class Work : uint8_t { kMatmuls, kAttention, kElementwise, kOptimizer, kHostOptimizer, kDown, kUp, kCollective };

// A device whose streams are clocks, and the host that queues its work. Work begins when its stream is free and the
// host has queued it. An event stores its stream's time when it is recorded, and a stream that waits for it continues
// no earlier. Code that orders its work by streams and events thus runs as on a GPU and yields the times of a GPU.
// Tensors have shapes but no memory; an ATen operator takes the time to read and write its tensors. At most one object
// exists per process at a time. Times are seconds since its construction.
class SimulatedDevice {
 public:
  static double nothing(int64_t) { return 0; }
  struct Costs {
    std::function<double(int64_t)> memory = nothing;              // a kernel that reads and writes N bytes
    std::function<double(int64_t)> down = nothing, up = nothing;  // N bytes to the host, N bytes to the device
    std::function<double(int64_t)> adamw = nothing;               // update of N parameters on the device
    std::function<double(int64_t)> squares = nothing;             // sum of squares of N gradients
    double launch = 4e-6;                                         // host time to queue one kernel
    double call = 0;                                              // host time to record an event or a stream wait
    double memory_bytes_per_second = 0;  // read and written bytes, shared by kernels and transfers; 0: unlimited
    // Set for a CPU, which queues nothing: the host runs the default stream's work synchronously.
    std::optional<SharedCores::Options> host = {};
  };
  struct Record {
    Work work;
    const char* name;
    double begin, end;
  };

  // Stands for `target`, a GPU or a CPU.
  explicit SimulatedDevice(Costs costs, c10::DeviceType target = c10::DeviceType::CUDA);
  ~SimulatedDevice();
  SimulatedDevice(const SimulatedDevice&) = delete;
  SimulatedDevice& operator=(const SimulatedDevice&) = delete;
  // Throws Failure if there is none.
  static SimulatedDevice& current();
  static c10::Device device() { return {kSimulatedDevice, 0}; }

  const Costs& costs() const { return costs_; }
  double host_now() const { return host_; }
  void host_works(double seconds) { host_ += seconds; }
  // Accounts for an event record or a stream wait. A CPU has neither.
  void host_calls() { host_ += cores_ ? 0 : costs_.call; }
  void host_waits_until(double time) { host_ = std::max(host_, time); }

  c10::StreamId current_stream() const { return current_; }
  c10::StreamId exchange_stream(c10::StreamId stream);
  c10::StreamId new_stream();
  // Time at which the stream's work so far is done.
  double clock(c10::StreamId stream) const { return std::max(clocks_[static_cast<size_t>(stream)], host_); }
  // The same if a separate thread queues the work.
  double stream_clock(c10::StreamId stream) const { return clocks_[static_cast<size_t>(stream)]; }
  void wait_until(c10::StreamId stream, double time);

  // Queues work on the current stream. With `link`, it begins no earlier than the link is free. Returns its end.
  double queue(Work work, const char* name, double seconds, BusyLink* link = nullptr);
  // The current stream's last work takes the last `seconds` before the end of its queue, and reads and writes `bytes`
  // of the device's memory. Concurrent kernels queued from now on are slower.
  void share_memory(double seconds, int64_t bytes);
  // Whether this is a CPU. The host's cores then run collectives, and move() returns the number for wait_for_move().
  bool is_host() const { return cores_.has_value(); }
  int64_t move(const char* name, double seconds);
  void wait_for_move(int64_t move);
  // Records work outside of streams, e.g. on the host's cores.
  void record(Work work, const char* name, double begin, double end) { records_.push_back({work, name, begin, end}); }

  BusyLink& down() { return down_; }
  BusyLink& up() { return up_; }
  const std::vector<Record>& records() const { return records_; }
  void forget_records() { records_.clear(); }

 private:
  Costs costs_;
  double host_ = 0;
  c10::StreamId current_ = 0;
  std::vector<double> clocks_{0};
  BusyLink down_, up_;
  SharedMemory memory_;
  std::optional<SharedCores> cores_;
  std::vector<Record> records_;
};

}  // namespace mpzero::plan
