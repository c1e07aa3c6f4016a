#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallel/optimizer/lr_schedule.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

using nlohmann::json;

const std::filesystem::path kSource = MPZERO_SOURCE_DIR;

// DeepSpeed's schedule for `type` and `params`; missing parameters have the defaults of its constructors.
LrSchedule make_schedule(const std::string& type, double optimizer_lr, const json& params) {
  const int64_t warmup = params.value("warmup_num_steps", int64_t{1000});
  const int64_t total = params.value("total_num_steps", int64_t{0});
  const WarmupType shape = params.value("warmup_type", "log") == "linear" ? WarmupType::kLinear : WarmupType::kLog;
  if (type == "WarmupLR") {
    return WarmupLr{params.value("warmup_min_lr", 0.0), params.value("warmup_max_lr", optimizer_lr), warmup, shape};
  }
  if (type == "WarmupDecayLR") {
    return WarmupDecayLr{params.value("warmup_min_lr", 0.0), params.value("warmup_max_lr", 1e-3), warmup, total, shape};
  }
  REQUIRE(type == "WarmupCosineLR");
  return WarmupCosineLr{
      optimizer_lr, params.value("warmup_min_ratio", 0.0), params.value("cos_min_ratio", 1e-4), warmup, total, shape};
}

void check_rate(double rate, double expected) {
  CHECK(std::abs(rate - expected) <= 1e-15 + 1e-13 * std::abs(expected));
}

// Oracle: deepspeed.runtime.lr_schedules, see make_lr_schedules.py.
TEST_CASE("every update uses the learning rate of DeepSpeed's schedulers") {
  std::ifstream file(kSource / "tests/parallel/fixtures/lr_schedules.json");
  REQUIRE(file.good());
  const json document = json::parse(file);
  REQUIRE(document["cases"].size() > 10);
  for (const json& test : document["cases"]) {
    const LrSchedule schedule = make_schedule(test["type"], test["optimizer_lr"], test["params"]);
    const auto expected = test["lr"].get<std::vector<double>>();
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO(test["type"] << " " << test["params"] << " update " << i + 1);
      check_rate(schedule.lr(static_cast<int64_t>(i) + 1), expected[i]);
    }
  }
}

// Oracle: transformers.optimization.get_scheduler and torch's StepLR, see make_lr_schedules.py.
TEST_CASE("every update uses the learning rate of the Trainer's schedules") {
  std::ifstream file(kSource / "tests/parallel/fixtures/trainer_lr_schedules.json");
  REQUIRE(file.good());
  const json document = json::parse(file);
  REQUIRE(document["cases"].size() > 10);
  for (const json& test : document["cases"]) {
    const std::string type = test["type"];
    const TrainerDecay decay = type == "linear"                ? TrainerDecay::kLinear
                               : type == "cosine"              ? TrainerDecay::kCosine
                               : type == "warmup_stable_decay" ? TrainerDecay::kAtTheEnd
                               : type == "step_lr"             ? TrainerDecay::kInSteps
                                                               : TrainerDecay::kConstant;
    const LrSchedule schedule = TrainerLr{decay,
                                          test["lr"],
                                          test["warmup_steps"],
                                          test["steps"],
                                          test.value("decay_steps", 0.0),
                                          test.value("gamma", 1.0)};
    const auto expected = test["rates"].get<std::vector<double>>();
    REQUIRE(expected.size() == test["steps"]);
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO(type << " " << test["warmup_steps"] << " of " << test["steps"] << " update " << i + 1);
      check_rate(schedule.lr(static_cast<int64_t>(i) + 1), expected[i]);
    }
  }
}

// Each kind of schedule, after 50 updates.
const std::vector<LrSchedule> kKinds = {WarmupLr{0.0, 1e-3, 5, WarmupType::kLog},
                                        WarmupDecayLr{1e-5, 1e-3, 5, 30, WarmupType::kLinear},
                                        WarmupCosineLr{1e-3, 0.0, 0.1, 5, 30, WarmupType::kLog},
                                        TrainerLr{TrainerDecay::kLinear, 1e-3, 5, 30},
                                        TrainerLr{TrainerDecay::kCosine, 1e-3, 5, 30},
                                        TrainerLr{TrainerDecay::kAtTheEnd, 1e-3, 5, 30, 10},
                                        TrainerLr{TrainerDecay::kInSteps, 1e-3, 5, 30, 10, 0.5}};

TEST_CASE("a schedule that restarts after a step warms up from the given learning rate, then is unchanged") {
  for (const LrSchedule& schedule : kKinds) {
    for (const double first : {1e-4, 0.0, 2e-3}) {
      const LrSchedule resumed = schedule.started_after(50, first);
      INFO(schedule.variant().index() << " from " << first);
      CHECK(resumed.lr(50) == first);
      CHECK(resumed.lr(51) == first);
      for (int64_t update = 51; update < 56; ++update) {
        CHECK((resumed.lr(update + 1) - resumed.lr(update)) * (1e-3 - first) >= 0);
      }
      // DeepSpeed's linear warm-up of 5 ends with its iteration 4, which is update 6.
      for (int64_t update = 7; update < 40; ++update) CHECK(resumed.lr(50 + update) == schedule.lr(update));
    }
  }
}

TEST_CASE("a held schedule keeps the learning rate of its last update") {
  for (const LrSchedule& schedule : kKinds) {
    const LrSchedule kept = schedule.held_after(20);
    for (int64_t update = 1; update <= 20; ++update) CHECK(kept.lr(update) == schedule.lr(update));
    CHECK(kept.lr(21) == schedule.lr(20));
    CHECK(kept.lr(1000) == schedule.lr(20));
  }
}

TEST_CASE("a schedule at half pace assigns each learning rate to every second update") {
  for (const LrSchedule& schedule : kKinds) {
    const LrSchedule slower = schedule.paced_after(10, 0.5);
    for (int64_t update = 10; update <= 40; ++update) CHECK(slower.lr(2 * update - 10) == schedule.lr(update));
    // And back: the schedule's own time has not been lost.
    const LrSchedule back = slower.paced_after(20, 2);
    for (int64_t update = 16; update <= 40; ++update) CHECK(back.lr(update + 5) == schedule.lr(update));
    CHECK(slower.update_at(15, 10) == 20);
    CHECK(slower.update_at(9, 10) == 10);
  }
}

TEST_CASE("the Trainer's cosine does not rise again after its last step") {
  const LrSchedule cosine = TrainerLr{TrainerDecay::kCosine, 1e-3, 0, 30};
  CHECK(cosine.lr(31) == Approx(0).margin(1e-18));
  CHECK(cosine.lr(45) == cosine.lr(31));
}

// DeepSpeed's own test cases of WarmupCosineLR: the schedule's step i is update i + 2.
TEST_CASE("the cosine schedule starts, peaks and ends as DeepSpeed's tests require") {
  struct Case {
    int64_t total, warmup;
    double cos_min, warmup_min;
  };
  constexpr double kPeak = 0.0015;
  for (const Case& test : {Case{100, 10, 0.1, 0.2}, Case{200, 20, 0.1, 0.2}, Case{500, 30, 0.0, 0.2},
                           Case{600, 300, 0.1, 0.0}, Case{600, 550, 0.0, 0.0}}) {
    const LrSchedule schedule =
        WarmupCosineLr{kPeak, test.warmup_min, test.cos_min, test.warmup, test.total, WarmupType::kLog};
    const auto step = [&](int64_t i) { return schedule.lr(i + 2); };
    CHECK(step(0) == Approx(kPeak * test.warmup_min).margin(1e-7));
    CHECK(step(test.warmup - 1) == Approx(kPeak).margin(1e-7));
    CHECK(step(test.total - 1) == Approx(kPeak * test.cos_min).margin(1e-7));
    CHECK(step(test.total + 50) == Approx(kPeak * test.cos_min).margin(1e-7));
    for (int64_t i = 1; i < test.warmup; ++i) CHECK(step(i) >= step(i - 1));
    for (int64_t i = test.warmup; i < test.total; ++i) CHECK(step(i) <= step(i - 1));
  }
}

// Rates that DeepSpeed 0.19.8 applied in full training runs.
TEST_CASE("learning rates of recorded DeepSpeed runs are reproduced") {
  const LrSchedule decay = WarmupDecayLr{1e-5, 1e-3, 5, 15, WarmupType::kLinear};
  const std::vector<double> decay_rates = {1e-05, 1e-05,    0.000208, 0.000406, 0.000604, 0.000802,
                                           0.001, 0.000901, 0.000802, 0.000703, 0.000604, 0.000505};
  for (size_t i = 0; i < decay_rates.size(); ++i) check_rate(decay.lr(static_cast<int64_t>(i) + 1), decay_rates[i]);

  const LrSchedule cosine = WarmupCosineLr{1e-3, 0.0, 0.1, 4, 20, WarmupType::kLog};
  const std::vector<double> cosine_rates = {0.0,
                                            0.0,
                                            0.0005,
                                            0.0007924812503605781,
                                            0.001,
                                            0.0009913533761814538,
                                            0.000965745789630079,
                                            0.0009241613255361454,
                                            0.0008681980515339464,
                                            0.000800006604858821,
                                            0.0007222075445642904,
                                            0.0006377906449072578};
  for (size_t i = 0; i < cosine_rates.size(); ++i) check_rate(cosine.lr(static_cast<int64_t>(i) + 1), cosine_rates[i]);
}

TEST_CASE("learning rates of the golden runs are reproduced") {
  const std::filesystem::path golden = kSource / "tests/golden";
  for (const char* run : {"llama-zero3-fp32", "qwen3-zero2-fp32", "qwen3-zero2-bf16"}) {
    std::ifstream config_file(golden / run / "ds_config.json");
    std::ifstream trace_file(golden / run / "trace.json");
    const json config = json::parse(config_file);
    const json trace = json::parse(trace_file)["trace"];
    REQUIRE(trace.size() == 12);
    const LrSchedule schedule =
        make_schedule(config["scheduler"]["type"], config["optimizer"]["params"]["lr"], config["scheduler"]["params"]);
    for (const json& step : trace) {
      INFO(run << " step " << step["step"]);
      check_rate(schedule.lr(step["step"]), step["lr_applied"]);
    }
  }
}

TEST_CASE("without a scheduler, the learning rate is constant") {
  const LrSchedule schedule = ConstantLr{3e-4};
  CHECK(schedule.lr(1) == 3e-4);
  CHECK(schedule.lr(1'000'000) == 3e-4);
}

TEST_CASE("a different length changes only the schedules that have a length") {
  const WarmupCosineLr cosine{1e-3, 0.0, 0.1, 4, 20, WarmupType::kLog};
  WarmupCosineLr longer = cosine;
  longer.total_num_steps = 40;
  for (int64_t update : {1, 5, 19, 30, 50}) {
    CHECK(LrSchedule(cosine).with_total_num_steps(40).lr(update) == LrSchedule(longer).lr(update));
  }
  const LrSchedule warmup = WarmupLr{0.0, 1e-3, 10, WarmupType::kLog};
  CHECK(warmup.with_total_num_steps(3).lr(8) == warmup.lr(8));
}

TEST_CASE("a different warm-up changes only the schedules that have a warm-up") {
  const TrainerLr linear{TrainerDecay::kLinear, 1e-3, 0, 20};
  TrainerLr warmed = linear;
  warmed.warmup_num_steps = 5;
  for (int64_t update : {1, 3, 6, 20}) {
    CHECK(LrSchedule(linear).with_warmup_num_steps(5).lr(update) == LrSchedule(warmed).lr(update));
  }
  CHECK(LrSchedule(linear).with_warmup_num_steps(5).lr(1) == 0.0);
  CHECK(LrSchedule(ConstantLr{1e-3}).with_warmup_num_steps(5).lr(1) == 1e-3);
}

}  // namespace
}  // namespace mpzero::parallel
