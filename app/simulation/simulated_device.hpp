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

// Kinds of recorded work.
enum class Work : uint8_t { kMatmuls, kAttention, kElementwise, kOptimizer, kHostOptimizer, kDown, kUp, kCollective };
inline constexpr size_t kWorks = 8;

// Simulates a device and the host that launches work on the device. A stream is a clock: work begins once its stream is
// free and the host has launched the work. Recording an event stores the time of its stream, and waiting for the event
// advances a stream to at least that time. Code that orders work by streams and events therefore has the timing of a
// GPU. Tensors have shapes but no memory, and the time of an ATen operator is the time to read and write its tensors.
// At most one SimulatedDevice may exist in a process. Times are seconds since construction.
class SimulatedDevice {
 public:
  static double nothing(int64_t) { return 0; }
  struct Costs {
    std::function<double(int64_t)> memory = nothing;              // kernel that reads and writes N bytes in total
    std::function<double(int64_t)> down = nothing, up = nothing;  // copies of N bytes
    std::function<double(int64_t)> adamw = nothing;               // update on the device that reads and writes N bytes
    std::function<double(int64_t)> squares = nothing;             // sum of squares of N bytes of gradients
    double launch = 4e-6;                                         // host time to launch one kernel
    double call = 0;                                              // CPU time of an event record or stream wait
    double memory_bytes_per_second = 0;                           // shared by kernels and transfers; 0: unlimited
    // Options of a simulated CPU, which runs the work of the default stream synchronously. Unset for a GPU.
    std::optional<SharedCores::Options> host = {};
  };
  struct Record {
    Work work;
    const char* name;
    double begin, end;
  };

  // `target`: type of the simulated device, CUDA or CPU.
  explicit SimulatedDevice(Costs costs, c10::DeviceType target = c10::DeviceType::CUDA);
  ~SimulatedDevice();
  SimulatedDevice(const SimulatedDevice&) = delete;
  SimulatedDevice& operator=(const SimulatedDevice&) = delete;
  // Returns the existing device. Throws Failure if no device exists.
  static SimulatedDevice& current();
  static c10::Device device() { return {kSimulatedDevice, 0}; }

  const Costs& costs() const { return costs_; }
  double host_now() const { return host_; }
  void host_works(double seconds) { host_ += seconds; }
  // Adds the CPU time of an event record or stream wait. No-op on a CPU.
  void host_calls() { host_ += cores_ ? 0 : costs_.call; }
  void host_waits_until(double time) { host_ = std::max(host_, time); }

  c10::StreamId current_stream() const { return current_; }
  c10::StreamId exchange_stream(c10::StreamId stream);
  c10::StreamId new_stream();
  // Returns the time at which work launched now can begin on the stream.
  double clock(c10::StreamId stream) const { return std::max(clocks_[static_cast<size_t>(stream)], host_); }
  // Returns the time at which the stream's queued work ends, for launches by a separate thread.
  double stream_clock(c10::StreamId stream) const { return clocks_[static_cast<size_t>(stream)]; }
  void wait_until(c10::StreamId stream, double time);

  // Queues work on the current stream and returns the end of the work. With `link`, the work also waits for the link.
  double queue(Work work, const char* name, double seconds, BusyLink* link = nullptr);
  // Declares that the last work on the current stream, which took `seconds`, reads and writes `bytes` of device memory.
  // This slows down concurrent kernels that are queued later.
  void share_memory(double seconds, int64_t bytes);
  // Returns true for a CPU, where the cores run collectives: move() starts a collective and returns the number for
  // wait_for_move().
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
