#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace mpzero::measure {

// Calls the measured operation on operand set `set`. Results are kept alive until the set is reused, so that
// consecutive calls write to different memory.
using Body = std::function<std::vector<at::Tensor>(int set)>;

struct Timing {
  double seconds = 0;       // on the device, per call
  double host_seconds = 0;  // host time to launch the kernels of one call
  // Interquartile range of the times of all rounds, divided by the typical time; 0 for fewer than kForSpread rounds.
  double spread = 0;
  static constexpr int kForSpread = 3;
};

// Number of timed rounds: at most `repeats`, reduced to fit in `seconds` but not below `least`.
struct Effort {
  int repeats = 20;
  double seconds = 1e9;
  int least = 1;
};

// Returns the number of rounds to time if each round takes `round_seconds`.
int repeats_for(const Effort& effort, double round_seconds);

// Returns the median of the rounds' times (lower quartile on the CPU), excluding host time.
Timing timing_of(std::vector<double> seconds, at::Device device);

// Returns the seconds that a GPU must sleep before a round, so that the host queues the round's kernels in time.
double host_lead(double host_seconds, double device_seconds);
void sleep_on_gpu(double seconds);

// Returns the median time of a call (lower quartile on the CPU) over rounds of `sets` calls each, after an untimed
// round. On a GPU, CUDA events on the current stream time each round, and a sleep kernel before the round hides launch
// latency. Synchronizes the device.
Timing measure(at::Device device, int sets, const Effort& effort, const Body& body);

// Bytes that evict all other data from a GPU's cache: several times the L2 cache of an H200.
constexpr int64_t kEvictedBytes = 256 << 20;
// Returns the number of operand sets of `bytes` bytes required to evict a set from the last-level cache before reuse.
int sets_for(double bytes);

}  // namespace mpzero::measure
