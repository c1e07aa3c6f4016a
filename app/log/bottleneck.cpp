#include "app/log/bottleneck.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "app/config/zero_options.hpp"

namespace mpzero {
namespace {

constexpr double kMostData = 0.05;
// Seconds. Waits for a slow disk are longer.
constexpr double kNoticeableData = 0.002;
// Also applies to waits for a slow rank.
constexpr double kMostCommunication = 0.10;
constexpr double kMostHostUpdate = 0.25;
constexpr double kLeastMfu = 0.30;
// Tokens. With larger micro-batches, a low MFU usually has another cause.
constexpr int64_t kSmallMicroBatch = 8192;
// The default without ds_config.json.
constexpr const char* kStage2 = R"("stage": 2)";

double gibibytes_of(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

// Lists the larger part first, and omits a part that rounds to 0%.
std::string of_communication(const StepSplit& mean, const BottleneckFacts& facts) {
  const bool parameters = mean.exposed_parameters > mean.exposed_gradients;
  const bool fits = facts.stage_2_bytes > 0 && facts.stage_2_bytes <= facts.spare_bytes;
  const double of_parameters = 100 * mean.exposed_parameters / mean.total();
  const double of_gradients = 100 * mean.exposed_gradients / mean.total();
  const char *const for_parameters = "parameter gathers", *const for_gradients = "gradient reductions";
  const double smaller = std::min(of_parameters, of_gradients);
  return fmt::format(
      "{:.0f}% of each step is spent waiting for {}{}: raise gradient_accumulation_steps or "
      "train_micro_batch_size_per_gpu to increase overlap{}",
      std::max(of_parameters, of_gradients), parameters ? for_parameters : for_gradients,
      smaller < 0.5 ? "" : fmt::format(" and {:.0f}% for {}", smaller, parameters ? for_gradients : for_parameters),
      fits && parameters ? fmt::format(", or use \"stage\": 2, which needs {:.1f} of the {:.1f} GiB of free GPU memory",
                                       gibibytes_of(facts.stage_2_bytes), gibibytes_of(facts.spare_bytes))
                         : "");
}

std::string of_host_update(double share, const BottleneckFacts& facts) {
  const bool fits = facts.host_states_bytes <= facts.spare_bytes, has_file = facts.new_file_keys.empty();
  const auto with_file = [&](const std::vector<std::string>& zero) {
    return "--deepspeed_config FILE with " + minimal_ds_config(facts.new_file_keys, zero);
  };
  const std::string change =
      fits ? fmt::format("{:.1f} GiB of GPU memory is free, enough for {:.1f} GiB of optimizer states: {}",
                         gibibytes_of(facts.spare_bytes), gibibytes_of(facts.host_states_bytes),
                         has_file ? R"(remove "offload_optimizer")" : "pass " + with_file({kStage2}))
           : fmt::format("raise gradient_accumulation_steps, or update some of the parameters on the GPUs ({})",
                         has_file ? R"("offload_optimizer": {"ratio": "auto"})"
                                  : with_file({kStage2, R"("offload_optimizer": {"device": "cpu", "ratio": "auto"})"}));
  return fmt::format("CPU AdamW takes {:.0f}% of each step: {}", 100 * share, change);
}

// Returns the lower median.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the fraction of a step that the median rank waits for the slowest rank.
double share_of_straggler(const std::vector<StepSplit>& means, const StepSplit& slowest) {
  std::vector<double> own_times;
  for (const StepSplit& mean : means) own_times.push_back(mean.own());
  return (slowest.own() - median(own_times)) / slowest.total();
}

struct Data {
  size_t rank = 0;
  double share = 0;
  bool counts = false;
  bool is_everywhere = false;
};

// Returns the data time of the rank with the longest data time.
Data data_of(const std::vector<StepSplit>& means) {
  std::vector<double> seconds;
  for (const StepSplit& mean : means) seconds.push_back(mean.data);
  const auto worst = static_cast<size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
  const double total = means[worst].total();
  const auto counts = [&](double data) { return data > kMostData * total && data > kNoticeableData; };
  return {.rank = worst,
          .share = seconds[worst] / total,
          .counts = counts(seconds[worst]),
          .is_everywhere = counts(median(seconds))};
}

std::string of_data(const Data& data) {
  return fmt::format(
      "{:.1f}% of each step{} is spent waiting for data: copy --train_data to a local disk of each node, such as NVMe",
      100 * data.share, data.is_everywhere ? "" : fmt::format(" on rank {}", data.rank));
}

}  // namespace

std::optional<std::string> bottleneck(const std::vector<StepSplit>& means, const BottleneckFacts& facts) {
  if (!facts.throttled.empty()) {
    return fmt::format("{}: check the cooling and power of this GPU, or exclude the host", facts.throttled);
  }
  if (std::any_of(means.begin(), means.end(), [](const StepSplit& mean) { return mean.total() <= 0; })) {
    return std::nullopt;
  }
  const StepSplit slowest =
      *std::max_element(means.begin(), means.end(), [](const auto& a, const auto& b) { return a.own() < b.own(); });
  enum Rule { kData, kCommunication, kHostUpdate };
  struct Share {
    Rule rule;
    double share;
    bool counts;
  };
  const Data data = data_of(means);
  const double communication = slowest.exposed_communication() / slowest.total();
  const double update = slowest.optimizer / slowest.total();
  const std::array shares = {
      Share{kData, data.share, data.counts},
      Share{kCommunication, communication, facts.world_size > 1 && communication > kMostCommunication},
      Share{kHostUpdate, update, facts.on_gpu && facts.offloads_optimizer && update > kMostHostUpdate}};
  const auto* worst = std::max_element(shares.begin(), shares.end(), [](const Share& a, const Share& b) {
    return (a.counts ? a.share : 0) < (b.counts ? b.share : 0);
  });
  if (worst->counts) {
    if (worst->rule == kCommunication) return of_communication(slowest, facts);
    if (worst->rule == kHostUpdate) return of_host_update(worst->share, facts);
    return of_data(data);
  }
  if (share_of_straggler(means, slowest) > kMostCommunication) return std::nullopt;
  if (facts.mfu && *facts.mfu < kLeastMfu && facts.micro_batch_tokens < kSmallMicroBatch && facts.spare_bytes > 0) {
    return fmt::format(
        "micro-batches of {} tokens reach {:.0f}% of the GPU's peak (MFU): raise train_micro_batch_size_per_gpu; "
        "{:.1f} GiB of GPU memory is free",
        facts.micro_batch_tokens, 100 * *facts.mfu, gibibytes_of(facts.spare_bytes));
  }
  return std::nullopt;
}

bool BottleneckWindow::add(const StepSplit& split, bool clipped) {
  ++seen_;
  const bool after_clipping = std::exchange(last_was_clipped_, clipped);
  if (seen_ > kWarmUp && seen_ <= kWarmUp + kSteps) {
    sum_ += split;
    if (after_clipping) ++after_clipping_;
  }
  return seen_ == kWarmUp + kSteps;
}

}  // namespace mpzero
