#include "app/exporter/run_metrics.hpp"

#include "app/health/cast_ranges.hpp"
#include "base/text/times.hpp"

namespace mpzero {

namespace {

void collect_casts(Families& to, const model::CastRanges& casts) {
  for (const model::OperandKind kind : model::kOperandKinds) {
    for (const model::LayerProduct product : model::kLayerProducts) {
      const std::optional<double> most = largest_of_layers(casts, product, kind);
      if (!most) continue;
      to.gauge("mpzero_fp8_max", "Largest amax of an FP8 matmul operand, over all layers and ranks.", *most,
               {{"operand", std::string(name(kind))}, {"product", std::string(name(product))}});
    }
  }
  for (const model::LayerProduct product : model::kLayerProducts) {
    const std::optional<double> most = largest_zero_share(casts, product);
    if (!most) continue;
    to.gauge("mpzero_fp8_zero_ratio", "Largest fraction of input values that underflow to 0 in FP8, over all layers.",
             *most, {{"product", std::string(name(product))}});
  }
}

}  // namespace

void RunMetrics::step(const StepReport& report, std::optional<double> mfu) {
  const std::lock_guard lock(mutex_);
  values_.last = report;
  values_.mfu = mfu;
  if (!report.validation.empty()) values_.validation = report.validation;
  if (!report.casts.empty()) values_.casts = report.casts;
  ++values_.steps;
  values_.durations.add(report.seconds);
  const StepSplit& split = report.split;
  values_.parts["forward"].add(split.forward);
  values_.parts["backward"].add(split.backward);
  values_.parts["exposed_parameters"].add(split.exposed_parameters);
  values_.parts["exposed_gradients"].add(split.exposed_gradients);
  values_.parts["optimizer"].add(split.optimizer);
  values_.parts["data"].add(split.data);
}

void RunMetrics::checkpoint_saved(double seconds, int64_t bytes, double paused_seconds) {
  const std::lock_guard lock(mutex_);
  ++values_.checkpoints;
  values_.checkpoint_time = seconds_since_1970();
  values_.checkpoint_seconds = seconds;
  values_.checkpoint_bytes = static_cast<double>(bytes);
  values_.paused_seconds += paused_seconds;
}

void RunMetrics::checkpoint_failed() {
  const std::lock_guard lock(mutex_);
  ++values_.failed_checkpoints;
}

void RunMetrics::warned() {
  const std::lock_guard lock(mutex_);
  ++values_.warnings;
}

void RunMetrics::collect(Families& to) const {
  Values now;
  {
    const std::lock_guard lock(mutex_);
    now = values_;
  }
  to.gauge("mpzero_max_steps", "Last step of the run.", static_cast<double>(beginning_.max_steps));
  to.counter("mpzero_steps_total", "Steps since the run last started.", static_cast<double>(now.steps));
  to.counter("mpzero_tokens_total", "Training tokens on all ranks since the run last started.",
             static_cast<double>(now.steps * tokens_per_step_));
  to.counter("mpzero_warnings_total", "Warnings since the run last started.", static_cast<double>(now.warnings));
  to.counter("mpzero_checkpoints_total", "Checkpoints saved since the run last started.",
             static_cast<double>(now.checkpoints));
  to.counter("mpzero_checkpoint_failures_total", "Failed saves since the run last started.",
             static_cast<double>(now.failed_checkpoints));
  to.counter("mpzero_checkpoint_paused_seconds_total",
             "Seconds that saves have paused training since the run last started.", now.paused_seconds);
  to.counter("mpzero_restarts_total", "Restarts of the run.", static_cast<double>(beginning_.restarts));
  if (beginning_.planned_bytes) {
    to.gauge("mpzero_memory_planned_bytes", "Estimated peak memory of a rank.",
             static_cast<double>(*beginning_.planned_bytes));
  }
  if (now.checkpoints > 0 || beginning_.saves) {
    to.gauge("mpzero_checkpoint_timestamp_seconds",
             "Unix time of the latest save; until the first save, the start time of the run.",
             now.checkpoints > 0 ? now.checkpoint_time : beginning_.began);
  }
  if (now.checkpoints > 0) {
    to.gauge("mpzero_checkpoint_duration_seconds", "Time to write the latest checkpoint.", now.checkpoint_seconds);
    to.gauge("mpzero_checkpoint_size_bytes", "Size of the latest checkpoint.", now.checkpoint_bytes);
  }
  const StepReport& last = now.last;
  to.gauge("mpzero_step", "Last completed step.",
           static_cast<double>(now.steps > 0 ? last.step : beginning_.steps_done));
  if (now.steps == 0) return;
  to.gauge("mpzero_loss", "Mean loss of the step, nats per token.", last.loss);
  to.gauge("mpzero_learning_rate", "Learning rate of the step.", last.lr);
  to.gauge("mpzero_grad_norm", "L2 norm of the step's gradient before clipping.", last.grad_norm);
  to.gauge("mpzero_tokens_per_second", "Tokens per second in the step, over all ranks.",
           static_cast<double>(tokens_per_step_) / last.seconds);
  to.gauge("mpzero_memory_peak_bytes", "Peak memory of rank 0.", static_cast<double>(last.peak_memory.total));
  if (now.mfu) to.gauge("mpzero_mfu_ratio", "Model FLOPs utilization relative to the dense bf16 peak.", *now.mfu);
  for (const auto& [set, loss] : now.validation) {
    const MetricLabels labels = set.empty() ? MetricLabels() : MetricLabels{{"set", set}};
    to.gauge("mpzero_validation_loss", "Latest validation loss, nats per token.", loss, labels);
  }
  collect_casts(to, now.casts);
  if (last.slowest) {
    to.gauge("mpzero_slowest_rank", "Rank with the longest time in the previous step, excluding waits for other ranks.",
             static_cast<double>(last.slowest->rank));
    to.gauge("mpzero_slowest_rank_ratio",
             "Slowest rank's time minus the median of the other ranks, as a fraction of the slowest rank's time.",
             last.slowest->share);
  }
  for (size_t rank = 0; rank < last.rank_seconds.size() && last.rank_seconds.size() > 1; ++rank) {
    to.gauge("mpzero_rank_own_seconds", "Time of a rank in the previous step, excluding waits for other ranks.",
             last.rank_seconds[rank], {{"rank", std::to_string(rank)}});
  }
  to.histogram("mpzero_step_seconds", "Duration of a step.", now.durations);
  for (const auto& [part, durations] : now.parts) {
    to.histogram("mpzero_step_part_seconds", "Time breakdown of a step on rank 0.", durations, {{"part", part}});
  }
}

}  // namespace mpzero
