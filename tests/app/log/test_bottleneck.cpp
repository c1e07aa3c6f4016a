#include <string>
#include <vector>

#include "app/log/bottleneck.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;

namespace {

constexpr int64_t kGib = int64_t{1} << 30;

// Of a step of 1 s.
StepSplit step(double data, double parameters, double gradients, double optimizer) {
  const double rest = 1 - data - parameters - gradients - optimizer;
  return {.data = data,
          .forward = rest / 3,
          .backward = rest * 2 / 3,
          .optimizer = optimizer,
          .exposed_parameters = parameters,
          .exposed_gradients = gradients};
}

BottleneckFacts on_gpus() {
  BottleneckFacts facts;
  facts.on_gpu = true;
  facts.world_size = 8;
  facts.stage_2_bytes = 14 * kGib;
  facts.micro_batch_tokens = 2048;
  facts.spare_bytes = 20 * kGib;
  facts.host_states_bytes = 6 * kGib;
  facts.mfu = 0.45;
  return facts;
}

std::string said_of(const std::vector<StepSplit>& means, const BottleneckFacts& facts) {
  return bottleneck(means, facts).value_or("");
}

std::string said(const StepSplit& mean, const BottleneckFacts& facts) { return said_of({mean}, facts); }

// Ranks whose steps take 1 s, of which each computes for so long and waits for the others in the rest.
std::vector<StepSplit> computing_for(const std::vector<double>& seconds) {
  std::vector<StepSplit> means;
  for (const double own : seconds) means.push_back(step(0, 0, 1 - own, 0));
  return means;
}

}  // namespace

TEST_CASE("a compute-bound step needs no advice") {
  CHECK(said(step(0.04, 0.05, 0.04, 0.1), on_gpus()).empty());
  CHECK(said({}, on_gpus()).empty());
}

TEST_CASE("reports data loading above 5% of a step") {
  CHECK_THAT(said(step(0.06, 0, 0, 0), on_gpus()),
             Contains("6.0% of each step is spent waiting for data") && Contains("--train_data"));
  CHECK(said(step(0.04, 0, 0, 0), on_gpus()).empty());
  // Of a step of 10 ms, that is 1 ms.
  CHECK(said(step(0.1, 0, 0, 0).divided_by(100), on_gpus()).empty());
}

TEST_CASE("reports communication above 10% of a step, by what is communicated") {
  CHECK_THAT(said(step(0, 0.15, 0.05, 0), on_gpus()),
             Contains("15% of each step is spent waiting for parameter gathers and 5% for gradient reductions") &&
                 Contains("\"stage\": 2"));
  CHECK_THAT(
      said(step(0, 0.02, 0.10, 0), on_gpus()),
      Contains("10% of each step is spent waiting for gradient reductions and 2% for parameter") && !Contains("stage"));
  BottleneckFacts facts = on_gpus();
  // More than the free memory, as for 70 billion parameters; 0 at stage 2, or with shard groups of one rank.
  for (const int64_t bytes : {21 * kGib, int64_t{0}}) {
    facts.stage_2_bytes = bytes;
    CHECK_THAT(said(step(0, 0.15, 0.05, 0), facts), Contains("parameter gathers") && !Contains("\"stage\""));
  }
  CHECK(said(step(0, 0.04, 0.05, 0), facts).empty());
}

TEST_CASE("waiting for a slow rank does not count as communication") {
  // Rank 2 waits for no rank: its 5% are communication.
  CHECK(said_of(computing_for({0.55, 0.55, 0.95, 0.55}), on_gpus()).empty());
  CHECK_THAT(said_of(computing_for({0.55, 0.55, 0.85, 0.55}), on_gpus()),
             Contains("15% of each step is spent waiting for gradient"));
  // Nor does the time that the others wait make a micro-batch small.
  BottleneckFacts facts = on_gpus();
  facts.mfu = 0.2;
  CHECK(said_of(computing_for({0.55, 0.55, 0.95, 0.55}), facts).empty());
  CHECK_THAT(said_of(computing_for({0.91, 0.95, 0.93, 0.92}), facts), Contains("micro-batches of 2048 tokens"));
}

TEST_CASE("the rank that waits longest for data is reported unless all ranks wait") {
  std::vector<StepSplit> means(4, step(0.01, 0, 0.3, 0));
  means[2] = step(0.3, 0, 0.01, 0);
  CHECK_THAT(said_of(means, on_gpus()),
             Contains("30.0% of each step on rank 2 is spent waiting for data") && Contains("--train_data"));
  means.assign(4, step(0.2, 0, 0, 0));
  CHECK_THAT(said_of(means, on_gpus()), Contains("20.0% of each step is spent waiting for data"));
}

TEST_CASE("reports AdamW on the host above 25% of a step, and whether its states fit on the GPU") {
  BottleneckFacts facts = on_gpus();
  CHECK(said(step(0, 0, 0, 0.8), facts).empty());  // that is the GPU's own
  facts.offloads_optimizer = true;
  CHECK_THAT(said(step(0, 0, 0, 0.8), facts), Contains("AdamW takes 80% of each step") &&
                                                  Contains("20.0 GiB of GPU memory is free, enough for 6.0 GiB"));
  facts.new_file_keys = R"("bf16": {"enabled": true})";
  CHECK_THAT(said(step(0, 0, 0, 0.8), facts), Contains("--deepspeed_config FILE with {") && !Contains("remove"));
  facts.new_file_keys.clear();
  facts.spare_bytes = 5 * kGib;
  CHECK_THAT(said(step(0, 0, 0, 0.8), facts), Contains("\"ratio\": \"auto\"") && !Contains("free"));
  CHECK(said(step(0, 0, 0, 0.2), facts).empty());
  facts.on_gpu = false;
  CHECK(said(step(0, 0, 0, 0.8), facts).empty());
}

TEST_CASE("if several rules match, the largest is reported") {
  BottleneckFacts facts = on_gpus();
  facts.offloads_optimizer = true;
  CHECK_THAT(said(step(0.2, 0.15, 0, 0.3), facts), Contains("AdamW"));
  CHECK_THAT(said(step(0.2, 0.15, 0, 0.1), facts), Contains("for data"));
  // A share below its own limit does not hide another one.
  CHECK_THAT(said(step(0.06, 0, 0, 0.2), facts), Contains("for data"));
}

TEST_CASE("a throttled GPU takes precedence over other causes") {
  BottleneckFacts facts = on_gpus();
  facts.throttled = "GPU 3 of node-7 is throttled (HW Thermal Slowdown)";
  CHECK_THAT(said(step(0.5, 0, 0, 0), facts), Contains("GPU 3 of node-7 is throttled") && Contains("cooling"));
}

TEST_CASE("reports a micro-batch too small to saturate the GPU") {
  BottleneckFacts facts = on_gpus();
  facts.mfu = 0.1;
  CHECK_THAT(said(step(0, 0, 0, 0), facts), Contains("micro-batches of 2048 tokens reach 10%") && Contains("20.0 GiB"));
  facts.micro_batch_tokens = 16'384;
  CHECK(said(step(0, 0, 0, 0), facts).empty());
  facts.micro_batch_tokens = 2048;
  facts.spare_bytes = 0;
  CHECK(said(step(0, 0, 0, 0), facts).empty());
  facts.spare_bytes = kGib;
  facts.mfu.reset();
  CHECK(said(step(0, 0, 0, 0), facts).empty());
}

TEST_CASE("the mean excludes the first steps and is reported once, at step 20") {
  BottleneckWindow window;
  StepSplit first;
  first.data = 100;
  StepSplit split;
  split.data = 2;
  int ends = 0;
  for (int64_t n = 0; n < 100; ++n) {
    const bool ended = window.add(n < BottleneckWindow::kWarmUp ? first : split);
    CHECK(ended == (n + 1 == 20));
    ends += ended ? 1 : 0;
  }
  CHECK(ends == 1);
  CHECK(window.mean().data == Approx(2));
}

TEST_CASE("steps count as following clipped steps by majority, not by the last step") {
  // The predecessors of steps 3 to 20.
  const auto after_clipping = [](int64_t first, int64_t last) {
    BottleneckWindow window;
    for (int64_t step = 1; step <= 20; ++step) window.add({}, first <= step && step <= last);
    return window.mostly_after_clipping();
  };
  CHECK(after_clipping(2, 19));
  CHECK(after_clipping(2, 11));
  CHECK_FALSE(after_clipping(1, 10));
  CHECK_FALSE(after_clipping(20, 20));
  CHECK_FALSE(after_clipping(11, 19));
}
