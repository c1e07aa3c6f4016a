#include "app/log/bottleneck.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mpzero {
namespace {

constexpr double kMostData = 0.05;
// Seconds: below, a disk is not the reason.
constexpr double kNoticeableData = 0.002;
constexpr double kMostCommunication = 0.10;
constexpr double kMostHostUpdate = 0.25;
constexpr double kLeastMfu = 0.30;
// With more tokens than these another reason is likelier.
constexpr int64_t kSmallMicroBatch = 8192;

double gibibytes_of(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

std::string of_communication(double share, const StepSplit& mean, const BottleneckFacts& facts) {
  const bool parameters = mean.exposed_parameters > mean.exposed_gradients;
  const bool large = facts.zero_stage == 3;
  return fmt::format(
      "{:.0f}% of a step wait for {}: raise gradient_accumulation_steps or train_micro_batch_size_per_gpu, so that "
      "there is more to compute for each byte{}",
      100 * share, parameters ? "parameters from other ranks" : "the sums of gradients",
      large && parameters ? ", or take \"stage\": 2 if the parameters fit into each GPU" : "");
}

std::string of_host_update(double share, const BottleneckFacts& facts) {
  const bool fits = facts.host_states_bytes <= facts.spare_bytes;
  const std::string change =
      fits ? fmt::format(
                 "{:.1f} GiB of GPU memory are free for its {:.1f} GiB of states: leave out "
                 "\"offload_optimizer\"",
                 gibibytes_of(facts.spare_bytes), gibibytes_of(facts.host_states_bytes))
           : std::string(
                 "raise gradient_accumulation_steps, or let the GPUs update a part (\"offload_optimizer\": "
                 "{\"ratio\": \"auto\"})");
  return fmt::format("{:.0f}% of a step are AdamW in host memory: {}", 100 * share, change);
}

}  // namespace

std::optional<std::string> bottleneck(const StepSplit& mean, const BottleneckFacts& facts) {
  if (!facts.throttled.empty()) {
    return fmt::format("{}: see to its cooling and power, or leave out its host", facts.throttled);
  }
  const double total = mean.total();
  if (total <= 0) return std::nullopt;
  enum Rule { kData, kCommunication, kHostUpdate };
  struct Share {
    Rule rule;
    double share;
    bool counts;
  };
  const double data = mean.data / total;
  const double communication = mean.exposed_communication() / total;
  const double update = mean.optimizer / total;
  const std::array shares = {
      Share{kData, data, data > kMostData && mean.data > kNoticeableData},
      Share{kCommunication, communication, facts.world_size > 1 && communication > kMostCommunication},
      Share{kHostUpdate, update, facts.on_gpu && facts.offloads_optimizer && update > kMostHostUpdate}};
  const auto* worst = std::max_element(shares.begin(), shares.end(), [](const Share& a, const Share& b) {
    return (a.counts ? a.share : 0) < (b.counts ? b.share : 0);
  });
  if (worst->counts) {
    if (worst->rule == kCommunication) return of_communication(worst->share, mean, facts);
    if (worst->rule == kHostUpdate) return of_host_update(worst->share, facts);
    return fmt::format(
        "{:.1f}% of a step wait for data: copy the file of --train_data to a disk of each node, such as its NVMe",
        100 * worst->share);
  }
  if (facts.mfu && *facts.mfu < kLeastMfu && facts.micro_batch_tokens < kSmallMicroBatch && facts.spare_bytes > 0) {
    return fmt::format(
        "micro-batches of {} tokens use {:.0f}% of the GPU's rate (MFU): raise train_micro_batch_size_per_gpu; {:.1f} "
        "GiB of GPU memory are free",
        facts.micro_batch_tokens, 100 * *facts.mfu, gibibytes_of(facts.spare_bytes));
  }
  return std::nullopt;
}

bool BottleneckWindow::add(const StepSplit& split) {
  ++seen_;
  if (seen_ > kWarmUp && seen_ <= kWarmUp + kSteps) sum_ += split;
  return seen_ == kWarmUp + kSteps;
}

}  // namespace mpzero
