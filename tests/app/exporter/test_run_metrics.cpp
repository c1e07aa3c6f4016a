#include <atomic>
#include <string>
#include <thread>

#include "app/exporter/run_metrics.hpp"
#include "tests/catch.hpp"

using namespace mpzero;

namespace {

StepReport report_of(int64_t step) {
  StepReport report;
  report.step = step;
  report.loss = 4.0 / static_cast<double>(step);
  report.lr = 1e-4;
  report.grad_norm = 2;
  report.seconds = 0.5;
  report.split.forward = 0.2;
  report.peak_memory.total = 1000;
  return report;
}

std::string text_of(const RunMetrics& metrics) {
  Families families(MetricLabels{});
  metrics.collect(families);
  return families.text();
}

bool has(const RunMetrics& metrics, const std::string& line) {
  return text_of(metrics).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("before the first step, a run has counters and progress but no step values") {
  RunMetrics metrics(1024);
  CHECK(has(metrics, "mpzero_steps_total 0"));
  CHECK(has(metrics, "mpzero_step 0"));
  CHECK(text_of(metrics).find("mpzero_loss") == std::string::npos);
  CHECK(text_of(metrics).find("mpzero_checkpoint_timestamp") == std::string::npos);
  CHECK(text_of(metrics).find("mpzero_memory_planned") == std::string::npos);
}

TEST_CASE("a resumed run reports its step, starts, plan and state age before its first save") {
  RunMetrics metrics(1024);
  metrics.begin(
      {.began = 1600000000, .steps_done = 40, .restarts = 2, .max_steps = 100, .saves = true, .planned_bytes = 5000});
  for (const char* line : {"mpzero_step 40", "mpzero_restarts_total 2", "mpzero_memory_planned_bytes 5000",
                           "mpzero_max_steps 100", "mpzero_checkpoint_timestamp_seconds 1600000000"}) {
    INFO(line);
    CHECK(has(metrics, line));
  }
  CHECK(text_of(metrics).find("mpzero_checkpoint_duration") == std::string::npos);
  metrics.checkpoint_saved(2, 4000, 0.25);
  CHECK_FALSE(has(metrics, "mpzero_checkpoint_timestamp_seconds 1600000000"));
  metrics.step(report_of(41), std::nullopt);
  CHECK(has(metrics, "mpzero_step 41"));
}

TEST_CASE("a scrape contains the latest step and the totals of all steps") {
  RunMetrics metrics(1024);
  StepReport first = report_of(11);
  first.validation = {{.set = "", .loss = 3.5}, {.set = "code", .loss = 2}};
  metrics.step(first, std::nullopt);
  metrics.step(report_of(12), 0.5);
  metrics.checkpoint_saved(2, 4000, 0.25);
  metrics.checkpoint_saved(3, 5000, 0.25);
  metrics.checkpoint_failed();
  metrics.warned();
  for (const char* line :
       {"mpzero_step 12", "mpzero_steps_total 2", "mpzero_tokens_total 2048", "mpzero_tokens_per_second 2048",
        "mpzero_loss 0.3333333333333333", "mpzero_validation_loss 3.5", R"(mpzero_validation_loss{set="code"} 2)",
        "mpzero_mfu_ratio 0.5", "mpzero_step_seconds_sum 1", "mpzero_step_part_seconds_sum{part=\"forward\"} 0.4",
        "mpzero_checkpoints_total 2", "mpzero_checkpoint_failures_total 1", "mpzero_checkpoint_duration_seconds 3",
        "mpzero_checkpoint_size_bytes 5000", "mpzero_checkpoint_paused_seconds_total 0.5", "mpzero_warnings_total 1",
        "mpzero_memory_peak_bytes 1000"}) {
    INFO(line);
    CHECK(has(metrics, line));
  }
}

TEST_CASE("a scrape contains the latest ranges of FP8 casts, if any") {
  RunMetrics metrics(1024);
  metrics.step(report_of(1), std::nullopt);
  CHECK(text_of(metrics).find("mpzero_fp8") == std::string::npos);
  using model::CastRanges;
  std::vector<model::CastRange> ranges(CastRanges::index(2, model::LayerProduct::kQkv, model::OperandKind::kInput));
  for (const int64_t layer : {0, 1}) {
    ranges[CastRanges::index(layer, model::LayerProduct::kDown, model::OperandKind::kInput)] = {
        .casts = 1, .maximum = 8.0 - static_cast<double>(layer), .sampled = 100, .zeros = 10 * layer};
  }
  StepReport report = report_of(2);
  report.casts = CastRanges(ranges);
  metrics.step(report, std::nullopt);
  metrics.step(report_of(3), std::nullopt);
  CHECK(has(metrics, R"(mpzero_fp8_max{operand="input",product="down"} 8)"));
  CHECK(has(metrics, R"(mpzero_fp8_zero_ratio{product="down"} 0.1)"));
  CHECK(text_of(metrics).find("gate_up") == std::string::npos);
}

TEST_CASE("a scrape during a step contains the values of a single step") {
  RunMetrics metrics(1024);
  metrics.step(report_of(1), std::nullopt);
  std::atomic<bool> done{false};
  std::thread trainer([&] {
    for (int64_t step = 1; !done; step = step % 64 + 1) metrics.step(report_of(step), std::nullopt);
  });
  const auto value = [](const std::string& text, const std::string& name) {
    return std::stod(text.substr(text.find("\n" + name + " ") + name.size() + 2));
  };
  for (int i = 0; i < 500; ++i) {
    const std::string text = text_of(metrics);
    CHECK(value(text, "mpzero_loss") == 4.0 / value(text, "mpzero_step"));
    CHECK(value(text, "mpzero_step_seconds_sum") == 0.5 * value(text, "mpzero_steps_total"));
  }
  done = true;
  trainer.join();
}
