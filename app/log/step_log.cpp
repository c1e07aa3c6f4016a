#include "app/log/step_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "app/flags/validation_data.hpp"
#include "app/health/cast_ranges.hpp"
#include "base/collectives.hpp"
#include "base/output.hpp"
#include "base/text/times.hpp"

namespace mpzero {
namespace {

// Prints six decimal places, as DeepSpeed's examples do. Uses scientific notation for smaller rates.
std::string show_rate(double lr) {
  return lr == 0 || lr >= 1e-5 ? fmt::format("{:.6f}", lr) : fmt::format("{:.3e}", lr);
}

constexpr double kGibibyte = 1 << 30;
std::string show_time(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string show_share(double share) { return fmt::format("{:.{}f}%", share * 100, share < 0.0995 ? 1 : 0); }

// Describes the time breakdown of a step of `seconds`. `exposed_shares`: share of exposed communication, by rank.
std::string describe(const StepSplit& split, double seconds, const std::vector<double>& exposed_shares) {
  const auto part = [&](const char* name, double time, const std::string& remark = {}) {
    return fmt::format("{} {} ({}{})", name, show_time(time), show_share(time / seconds), remark);
  };
  const auto most = std::max_element(exposed_shares.begin(), exposed_shares.end());
  std::string most_exposed;
  if (show_share(*most) != show_share(exposed_shares.front())) {
    most_exposed = fmt::format("; rank {}: {}", most - exposed_shares.begin(), show_share(*most));
  }
  return fmt::format("  time: {}, {}, {}, {}, {}", part("forward", split.forward), part("backward", split.backward),
                     part("exposed communication", split.exposed_communication(), most_exposed),
                     part("optimizer", split.optimizer), part("data", split.data));
}

}  // namespace

StepLog::StepLog(const RunConfig& config, ProcessGroup& group, std::optional<PeakTime> peak)
    : config_(config), group_(group), prints_(group.rank() == 0), peak_(peak) {}

void StepLog::begin(int64_t steps_done, const MetricsOwner& run, const std::string& start,
                    const nlohmann::ordered_json& facts) {
  start_ = {.folder = folder(), .run_id = run.run_id, .start = start};
  if (!prints_) return;
  if (!config_.metrics_file.empty()) {
    check_is_for_metrics(config_.metrics_file);
    if (steps_done == 0) check_metrics_file(config_.metrics_file);
    metrics_.emplace(config_.metrics_file, steps_done, run, [this](const std::string& remark) { warn(remark + "."); });
  }
  // The event log cannot record warnings about itself, so only print them.
  events_ = std::make_shared<RunEvents>(start_, facts, [](const std::string& line) { print_warning(line + "."); });
  const std::vector<std::string> early = *std::exchange(early_warnings_, std::nullopt);
  for (const std::string& line : early) events_->warning(line);
  bar_.emplace("Training", config_.max_steps);
  bar_->update(steps_done);
}

std::filesystem::path StepLog::folder() const {
  if (config_.metrics_file.empty()) return config_.checkpoint_dir;
  return std::filesystem::path(config_.metrics_file).parent_path();
}

int64_t StepLog::earlier_starts(const std::string& run_id) const {
  return prints_ ? RunEvents::totals_in(folder(), run_id).starts : 0;
}

void StepLog::observe(RunObserver& observer) {
  observer_ = &observer;
  for (size_t i = 0; early_warnings_ && i < early_warnings_->size(); ++i) observer.warned();
}

void StepLog::say(const std::string& line) {
  if (prints_) print_out("{}\n", line);
}

void StepLog::warn(const std::string& line) {
  if (!prints_) return;
  print_warning(line);
  record_warning(line);
}

void StepLog::record_warning(const std::string& line) {
  if (!prints_) return;
  if (observer_ != nullptr) observer_->warned();
  if (early_warnings_) early_warnings_->push_back(line);
  if (events_) events_->warning(line);
}

void StepLog::saved(int64_t step, double seconds, int64_t bytes, double paused_seconds) {
  if (observer_ != nullptr) observer_->checkpoint_saved(seconds, bytes, paused_seconds);
  if (events_) {
    events_->checkpoint(step, seconds, bytes, paused_seconds);
    events_->sync();
  }
  if (metrics_) metrics_->sync();
}

void StepLog::save_failed() {
  if (observer_ != nullptr) observer_->checkpoint_failed();
}

void StepLog::end(std::string_view status, std::string_view reason) {
  if (events_) {
    if (const std::string line = events_->end(status, reason); !line.empty()) say(line);
  }
  events_.reset();
}

std::function<void(std::string_view, std::string_view)> StepLog::late_end() const {
  return [events = events_, start = start_](std::string_view status, std::string_view reason) {
    const std::string line = events ? events->end(status, reason) : end_start(start, status, reason, print_warning);
    if (!line.empty()) print_out("{}\n", line);
  };
}

bool StepLog::is_logged(int64_t step) const {
  return step == config_.max_steps || (config_.logging_freq > 0 && step % config_.logging_freq == 0);
}

void StepLog::step(const StepReport& report) {
  ++steps_;
  seconds_ += report.seconds;
  attention_shares_ += report.attention_share;
  split_ += report.split;
  if (is_logged(report.step)) log_line(report);
  if (!prints_) return;
  if (observer_ != nullptr) observer_->step(report, mfu(report.seconds, report.attention_share));
  if (events_) events_->count_step(report.seconds, config_.train_batch_size * config_.seq_length);
  for (const auto& [set, loss] : report.validation) {
    say(fmt::format("Batch {} Validation loss{}: {:.5f}", report.step, set.empty() ? "" : " of " + set, loss));
  }
  if (metrics_) write_metrics(report);
  const auto tokens = static_cast<double>(config_.train_batch_size * config_.seq_length);
  bar_->update(report.step, fmt::format("loss {:.4f}, {:.0f} tokens/s", report.loss, tokens / report.seconds));
}

std::optional<double> StepLog::mfu(double step_seconds, double attention_share) const {
  return peak_ ? std::optional(peak_->seconds(attention_share) / step_seconds) : std::nullopt;
}

// The first two lines have at most 80 columns. The first line begins with the keys of DeepSpeed's examples.
void StepLog::log_line(const StepReport& report) {
  const double exposed_share = split_.exposed_communication() / seconds_;
  const double steps = static_cast<double>(std::exchange(steps_, 0));
  const double step_seconds = std::exchange(seconds_, 0) / steps;
  const double attention_share = std::exchange(attention_shares_, 0) / steps;
  const StepSplit split = std::exchange(split_, {}).divided_by(steps);
  const auto samples_per_step = static_cast<double>(config_.train_batch_size);
  const double tokens_per_step = samples_per_step * static_cast<double>(config_.seq_length);
  const std::optional<double> share = mfu(step_seconds, attention_share);
  say(fmt::format("Batch {} Loss: {:.5f}, Speed: {:.2f} samples/sec, lr: {}", report.step, report.loss,
                  samples_per_step / step_seconds, show_rate(report.lr)));
  say(fmt::format("  Grad norm: {:.4f}, Tokens/sec: {:.0f}, Memory: {:.2f} GiB{}", report.grad_norm,
                  tokens_per_step / step_seconds, static_cast<double>(report.peak_memory.total) / kGibibyte,
                  share ? fmt::format(", MFU: {:.1f}%", *share * 100) : ""));
  if (config_.wall_clock_breakdown) say(describe(split, step_seconds, all_gather(group_, exposed_share)));
}

void StepLog::write_metrics(const StepReport& report) {
  const double tokens = static_cast<double>(config_.train_batch_size) * static_cast<double>(config_.seq_length);
  const StepSplit& split = report.split;
  nlohmann::ordered_json step = {{"step", report.step},
                                 {"loss", report.loss},
                                 {"lr", report.lr},
                                 {"grad_norm", report.grad_norm},
                                 {"tokens", report.tokens_seen},
                                 {"tokens_per_second", tokens / report.seconds},
                                 {"step_seconds", report.seconds},
                                 {"time", seconds_since_1970()},
                                 {"forward_seconds", split.forward},
                                 {"backward_seconds", split.backward},
                                 {"exposed_communication_seconds", split.exposed_communication()},
                                 {"exposed_parameters_seconds", split.exposed_parameters},
                                 {"exposed_gradients_seconds", split.exposed_gradients},
                                 {"optimizer_seconds", split.optimizer},
                                 {"data_seconds", split.data},
                                 {"peak_memory_bytes", report.peak_memory.total}};
  if (report.peak_memory.allocated) step["peak_allocated_bytes"] = *report.peak_memory.allocated;
  if (report.attention_share < 1) step["attention_share"] = report.attention_share;
  if (const auto share = mfu(report.seconds, report.attention_share)) step["mfu"] = *share;
  if (report.slowest) {
    step["slowest_rank"] = report.slowest->rank;
    step["slowest_rank_share"] = report.slowest->share;
  }
  if (report.internode_bytes > 0) step["internode_bytes"] = report.internode_bytes;
  if (report.checkpoint_blocked_seconds > 0) step["checkpoint_blocked_seconds"] = report.checkpoint_blocked_seconds;
  if (!report.casts.empty()) {
    double most_zeros = 0;
    for (const model::LayerProduct product : model::kLayerProducts) {
      most_zeros = std::max(most_zeros, largest_zero_share(report.casts, product).value_or(0));
    }
    step["fp8_zero_share"] = most_zeros;
    if (const auto most = largest_of_layers(report.casts, model::LayerProduct::kDown, model::OperandKind::kInput)) {
      step["fp8_down_input_max"] = *most;
    }
    step["fp8"] = to_json(report.casts);
  }
  for (const auto& [set, loss] : report.validation) step[validation_loss_key(set)] = loss;
  // The list is long with many ranks, so only write it for logged steps.
  if (is_logged(report.step) && report.rank_seconds.size() > 1) step["rank_seconds"] = report.rank_seconds;
  metrics_->write(std::move(step));
}

}  // namespace mpzero
