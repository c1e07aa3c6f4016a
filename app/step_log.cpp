#include "app/step_log.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace mpzero {
namespace {

constexpr double kGibibyte = 1 << 30;

}  // namespace

StepLog::StepLog(const RunConfig& config, bool speaks) : config_(config), speaks_(speaks) {}

void StepLog::begin(int64_t steps_done) {
  if (!speaks_) return;
  if (!config_.metrics_file.empty()) metrics_.emplace(config_.metrics_file, steps_done);
  bar_.emplace("Training", config_.max_steps);
  bar_->update(steps_done);
}

void StepLog::say(const std::string& line) {
  if (!speaks_) return;
  if (bar_) bar_->clear();
  std::puts(line.c_str());
  std::fflush(stdout);
}

void StepLog::warn(const std::string& line) {
  if (!speaks_) return;
  if (bar_) bar_->clear();
  fmt::print(stderr, "mpzero: warning: {}\n", line);
}

void StepLog::step(const StepReport& report) {
  if (!speaks_) return;
  ++steps_;
  seconds_ += report.seconds;
  const auto samples_per_step = static_cast<double>(config_.train_batch_size);
  const double tokens_per_step = samples_per_step * static_cast<double>(config_.seq_length);
  const bool last = report.step == config_.max_steps;
  if ((config_.logging_freq > 0 && report.step % config_.logging_freq == 0) || last) {
    const double steps_per_second = static_cast<double>(steps_) / seconds_;
    say(
        fmt::format("Batch {} Loss: {:.5f}, Speed: {:.2f} samples/sec, lr: {:.6f}, Grad norm: {:.4f}, Tokens/sec: "
                    "{:.0f}, Memory: {:.2f} GiB",
                    report.step, report.loss, steps_per_second * samples_per_step, report.lr, report.grad_norm,
                    steps_per_second * tokens_per_step, static_cast<double>(report.peak_memory_bytes) / kGibibyte));
    steps_ = 0;
    seconds_ = 0;
  }
  if (report.validation_loss)
    say(fmt::format("Batch {} Validation loss: {:.5f}", report.step, *report.validation_loss));
  if (metrics_) {
    io::StepMetrics metrics{.step = report.step,
                            .loss = report.loss,
                            .lr = report.lr,
                            .grad_norm = report.grad_norm,
                            .tokens = report.tokens_seen,
                            .tokens_per_second = tokens_per_step / report.seconds,
                            .step_seconds = report.seconds,
                            .extra = {{"peak_memory_bytes", static_cast<double>(report.peak_memory_bytes)}}};
    if (report.validation_loss) metrics.extra.emplace_back("validation_loss", *report.validation_loss);
    metrics_->write(metrics);
  }
  bar_->update(report.step, fmt::format("loss {:.4f}", report.loss));
}

}  // namespace mpzero
