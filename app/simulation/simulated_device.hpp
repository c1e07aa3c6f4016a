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

// What work is, for the report.
enum class Work : uint8_t { kMatmuls, kAttention, kElementwise, kOptimizer, kHostOptimizer, kDown, kUp, kCollective };

// A device whose streams are clocks, and the host that queues its work. Work begins when its stream is free and the
// host has queued it; an event has the time that its stream has when it is recorded, and a stream that waits for it
// goes on no earlier. So code that orders its work by streams and events runs as it does on a GPU and gives the times
// that a GPU would take. Its tensors have shapes and no memory; an operator of ATen takes the time to read and write
// what it is given. One object at a time is current, for the process. All times are seconds since the object was made.
class SimulatedDevice {
 public:
  static double nothing(int64_t) { return 0; }
  struct Costs {
    std::function<double(int64_t)> memory = nothing;              // a kernel that reads and writes so many bytes
    std::function<double(int64_t)> down = nothing, up = nothing;  // so many bytes to the host, and to the device
    std::function<double(int64_t)> adamw = nothing;               // so many parameters updated on the device
    std::function<double(int64_t)> squares = nothing;             // the sum of squares of so many gradients
    double launch = 4e-6;                                         // the host queues one kernel
    double call = 0;                                              // the host records an event, or lets a stream wait
    double memory_bytes_per_second = 0;  // read and written, that kernels and transfers share; 0: enough for all
    // Of a CPU, which queues nothing: what its default stream is given the host does itself, and waits for it.
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
  // Records an event, or lets a stream wait for one. A CPU has none.
  void host_calls() { host_ += cores_ ? 0 : costs_.call; }
  void host_waits_until(double time) { host_ = std::max(host_, time); }

  c10::StreamId current_stream() const { return current_; }
  c10::StreamId exchange_stream(c10::StreamId stream);
  c10::StreamId new_stream();
  // When what the stream has been given so far is done.
  double clock(c10::StreamId stream) const { return std::max(clocks_[static_cast<size_t>(stream)], host_); }
  // The same for a thread of its own that queues the work.
  double stream_clock(c10::StreamId stream) const { return clocks_[static_cast<size_t>(stream)]; }
  void wait_until(c10::StreamId stream, double time);

  // Queues work on the current stream: with `link` no earlier than that is free. Returns when it ends.
  double queue(Work work, const char* name, double seconds, BusyLink* link = nullptr);
  // The work that the current stream was given last takes `seconds` up to the end of all its work so far, and reads and
  // writes so many bytes of the device's memory. Kernels that are queued from now on are slower beside it.
  void share_memory(double seconds, int64_t bytes);
  // Whether it is a CPU. Then a collective is moved by the host's cores, and is waited for by the number that move()
  // returns.
  bool is_host() const { return cores_.has_value(); }
  int64_t move(const char* name, double seconds);
  void wait_for_move(int64_t move);
  // Work that no stream has, as of the host's cores.
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
