#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "app/checkpoint/resume_schedule.hpp"
#include "app/config/run_length.hpp"
#include "app/config/settings_table.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"
#include "tests/io/stub_checkpoint.hpp"

namespace mpzero {
namespace {

using Catch::Contains;
using nlohmann::json;

constexpr const char* kFile = R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 4, "cos_min_ratio": 0.1}}})";

// The checkpoint of a run of these settings after `step`.
io::testing::StubCheckpoint saved_by(const RunConfig& config, int64_t step) {
  io::testing::StubCheckpoint saved;
  saved.made.step = step;
  saved.made.lr = config.lr(step);
  saved.made.settings_json = settings_record(config).dump();
  return saved;
}

RunConfig config_of(const std::vector<std::string>& flags) { return run(kFile, flags).config; }

ResumedSchedule after(const RunConfig& before, int64_t step, const RunConfig& now) {
  const io::testing::StubCheckpoint saved = saved_by(before, step);
  return schedule_after(saved, now, json::parse(saved.progress().settings_json));
}

TEST_CASE("the same settings do not change the schedule") {
  const ResumedSchedule same = after(config_of({"--max_steps=20"}), 20, config_of({"--max_steps=20"}));
  CHECK_FALSE(same.schedule);
  CHECK(same.warning.empty());
  CHECK(same.line.empty());
}

TEST_CASE("a longer run keeps the last learning rate, and its next start uses the checkpoint's schedule") {
  const RunConfig before = config_of({"--max_steps=20"});
  RunConfig now = config_of({"--max_steps=40"});
  const ResumedSchedule longer = after(before, 20, now);
  REQUIRE(longer.schedule);
  for (int64_t update = 21; update <= 40; ++update) CHECK(longer.schedule->lr(update) == before.schedule.lr(20));
  CHECK_THAT(longer.line, Contains("--schedule_on_resume") && Contains("extend"));
  CHECK(longer.warning.empty());
  now.resumed_schedule = longer.schedule;
  const ResumedSchedule again = after(now, 30, config_of({"--max_steps=40"}));
  REQUIRE(again.schedule);
  CHECK(again.schedule->lr(31) == before.schedule.lr(20));
  CHECK(again.warning.empty());
}

TEST_CASE("a kept learning rate stays when the run is extended again") {
  const RunConfig before = config_of({"--max_steps=20"});
  RunConfig now = config_of({"--max_steps=40"});
  now.resumed_schedule = after(before, 20, now).schedule;
  const ResumedSchedule again = after(now, 30, config_of({"--max_steps=60"}));
  REQUIRE(again.schedule);
  for (int64_t update = 31; update <= 60; ++update) CHECK(again.schedule->lr(update) == before.schedule.lr(20));
}

TEST_CASE("after the end of its schedule, a run keeps the checkpoint's learning rate") {
  const std::string file = R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 4, "total_num_steps": 20}}})";
  const RunConfig before = run(file, {"--max_steps=40"}).config;
  const ResumedSchedule kept = after(before, 25, run(file, {"--max_steps=40", "--schedule_on_resume=keep"}).config);
  REQUIRE(kept.schedule);
  REQUIRE(before.schedule.lr(25) < before.schedule.lr(20));
  for (int64_t update = 26; update <= 40; ++update) CHECK(kept.schedule->lr(update) == before.schedule.lr(25));
}

TEST_CASE("a slightly shorter run ends within its schedule") {
  const auto cosine = [](const std::string& steps) {
    return run("", {"--lr_scheduler_type=cosine", "--warmup_steps=4", "--max_steps=" + steps}).config;
  };
  const RunConfig before = cosine("148");
  const auto shorter = after(before, 95, cosine("143")).schedule;
  REQUIRE(shorter);
  for (int64_t update = 96; update <= 143; ++update) CHECK(shorter->lr(update) == before.schedule.lr(update));
}

TEST_CASE("step_lr keeps decaying when a run is extended, even with a different batch size") {
  const std::string file = R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})";
  const auto of_epochs = [&](int epochs, int batch) {
    Result result =
        run(file, {"--lr_scheduler_type=step_lr", "--lr_gamma=0.5", "--num_train_epochs=" + std::to_string(epochs),
                   "--train_batch_size=" + std::to_string(batch)});
    result.config.epoch_batch = 8;
    apply_epochs(result.config, 32, result.warnings, epochs == 1 ? RunPosition{} : RunPosition{4, 32});
    return result.config;
  };
  const RunConfig before = of_epochs(1, 8);  // 4 steps
  for (const int batch : {8, 4}) {
    const ResumedSchedule longer = after(before, 4, of_epochs(3, batch));
    const parallel::LrSchedule schedule = longer.schedule.value_or(of_epochs(3, batch).schedule);
    const int64_t epoch = 32 / batch;
    // With another batch, whose updates end within those of before, one update later.
    const int64_t late = batch == 8 ? 0 : 1;
    for (int64_t i = late; i < 2 * epoch; ++i) CHECK(schedule.lr(5 + i) == Approx(i < epoch + late ? 5e-4 : 2.5e-4));
  }
}

TEST_CASE("each value of --schedule_on_resume has the documented effect") {
  const RunConfig before = config_of({"--max_steps=20"});
  const auto chosen = [&](const char* way, int64_t step) {
    return *after(before, step, config_of({"--max_steps=40", std::string("--schedule_on_resume=") + way})).schedule;
  };
  const double lr = before.schedule.lr(10);
  CHECK(chosen("keep", 10).lr(15) == before.schedule.lr(15));
  CHECK(chosen("keep", 10).lr(40) == before.schedule.lr(20));
  CHECK(chosen("rewarm", 10).lr(11) == lr);
  // 40 steps in the 30 that remain: the first and the last are those of the schedule.
  CHECK(chosen("rewarm", 10).time(11) == 1);
  CHECK(chosen("rewarm", 10).time(40) == Approx(40));
  CHECK(chosen("rewarm", 10).lr(40) == Approx(config_of({"--max_steps=40"}).schedule.lr(40)));
  CHECK(chosen("rewarm", 10).lr(14) == Approx(1e-3).epsilon(0.01));
  CHECK(chosen("extend", 10).lr(11) == config_of({"--max_steps=40"}).schedule.lr(11));
}

TEST_CASE("keep warns about the parts of the new schedule that it ignores; rewarm and extend use them") {
  const RunConfig before = config_of({"--max_steps=20"});
  const auto asked = [&](const std::string& way) {
    return after(before, 10,
                 config_of({"--max_steps=40", "--learning_rate=2e-3", "--deepspeed_config_yields=true",
                            std::string("--schedule_on_resume=") + way}));
  };
  CHECK_THAT(asked("keep").warning, Contains("0.002") && Contains("0.001") && Contains("extend"));
  CHECK(asked("keep").schedule->lr(15) == before.schedule.lr(15));
  for (const char* way : {"rewarm", "extend"}) CHECK(asked(way).warning.empty());
  CHECK(after(before, 10, config_of({"--max_steps=40", "--schedule_on_resume=keep"})).warning.empty());
}

TEST_CASE("without a warm-up, a new decay begins at the checkpoint's learning rate") {
  const auto linear = [](const std::string& steps, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--lr_scheduler_type=linear", "--learning_rate=1e-3", "--max_steps=" + steps});
    return run("", flags).config;
  };
  const RunConfig before = linear("20", {});
  const auto chosen = after(before, 10, linear("40", {"--schedule_on_resume=rewarm"}));
  REQUIRE(chosen.schedule);
  CHECK(chosen.schedule->lr(11) == before.schedule.lr(10));
  CHECK(chosen.schedule->lr(26) == Approx(before.schedule.lr(10) * (40 - 15 * 39.0 / 29) / 40));
}

TEST_CASE("a warm-up of one step suffices to return to the peak") {
  const auto linear = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--lr_scheduler_type=linear", "--learning_rate=1e-3", "--warmup_steps=1"});
    return run("", flags).config;
  };
  const RunConfig before = linear({"--max_steps=20"});
  const auto chosen = after(before, 10, linear({"--max_steps=60", "--schedule_on_resume=rewarm"})).schedule;
  REQUIRE(chosen);
  CHECK(chosen->lr(11) == before.schedule.lr(10));
  CHECK(chosen->lr(13) > 0.9e-3);
}

TEST_CASE("a length that does not change the next learning rate needs no choice") {
  const auto stable = [](const std::string& steps) {
    return run("", {"--lr_scheduler_type=warmup_stable_decay", "--num_decay_steps=5", "--max_steps=" + steps}).config;
  };
  CHECK_FALSE(after(stable("20"), 10, stable("40")).schedule);
  CHECK(after(stable("20"), 10, stable("40")).warning.empty());
}

// The run without --schedule_on_resume, after its last step, with as many steps more.
ResumedSchedule extended(const std::vector<std::string>& flags, int64_t steps, int64_t longer) {
  const auto with = [&](int64_t max_steps) {
    std::vector<std::string> all = flags;
    all.push_back(fmt::format("--max_steps={}", max_steps));
    return run("", all).config;
  };
  return after(with(steps), steps, with(longer));
}

TEST_CASE("a slightly longer run warms up and decays in the remaining steps") {
  const auto chosen = extended({"--learning_rate=1e-3"}, 300, 360).schedule;  // 100 warm-up steps
  REQUIRE(chosen);
  CHECK(chosen->lr(318) == Approx(1e-3).epsilon(0.001));
  CHECK(chosen->lr(360) == Approx(run("", {"--learning_rate=1e-3", "--max_steps=360"}).config.schedule.lr(360)));
}

TEST_CASE("a run with few additional steps ends at its schedule's end, or is refused") {
  const std::vector<std::vector<std::string>> kinds = {
      {},
      {"--lr_scheduler_type=linear", "--warmup_steps=20"},
      {"--lr_scheduler_type=cosine", "--warmup_steps=20"},
      {"--lr_scheduler_type=warmup_stable_decay", "--warmup_steps=20", "--num_decay_steps=60"}};
  for (const std::vector<std::string>& flags : kinds) {
    int refused = 0;
    for (int64_t longer = 301; longer <= 330; ++longer) {
      INFO(longer << " steps");
      std::optional<parallel::LrSchedule> chosen;
      try {
        chosen = extended(flags, 300, longer).schedule;
      } catch (const UserError&) {
        ++refused;
        continue;
      }
      REQUIRE(chosen);
      CHECK(chosen->lr(longer) < 0.01 * 5e-5);
      double highest = 0;
      for (int64_t update = 301; update <= longer; ++update) highest = std::max(highest, chosen->lr(update));
      CHECK(highest > 0.5 * 5e-5);
    }
    CHECK(refused <= 3);
  }
}

TEST_CASE("the decay of warmup_stable_decay shrinks with the remaining steps") {
  const std::vector<std::string> flags = {"--lr_scheduler_type=warmup_stable_decay", "--num_decay_steps=100",
                                          "--warmup_steps=10", "--learning_rate=1e-3"};
  const auto chosen = extended(flags, 200, 240).schedule;
  REQUIRE(chosen);
  // The steepest step of a cosine over 100 steps, of which each takes 239 / 39: the 240 steps are played in 40.
  const double steepest = 1e-3 * std::numbers::pi / 2 / 100 * 239 / 39;
  for (int64_t update = 201; update < 240; ++update) CHECK(chosen->lr(update) - chosen->lr(update + 1) <= steepest);
  CHECK(chosen->lr(203) == 1e-3);
  CHECK(chosen->lr(240) < 1e-5);
}

TEST_CASE("a run that could only train at almost zero learning rate is refused") {
  CHECK_THAT(error_from([] { extended({"--lr_scheduler_type=cosine"}, 200, 400); }), Contains("--warmup_steps"));
  CHECK(extended({"--lr_scheduler_type=cosine", "--warmup_steps=5"}, 200, 400).schedule);
}

// A run of one epoch of 96 sequences; `micro` on two ranks.
RunConfig one_epoch(int64_t micro, const RunPosition& at, int epochs = 1, std::vector<std::string> flags = {}) {
  flags.insert(flags.end(), {"--lr_scheduler_type=cosine", "--warmup_steps=4", fmt::format("--epochs={}", epochs),
                             fmt::format("--per_device_train_batch_size={}", micro)});
  Result result = run("", flags);
  apply_epochs(result.config, 96, result.warnings, at);
  return result.config;
}

TEST_CASE("the schedule of epochs advances with the sequences, for any batch size") {
  const RunConfig before = one_epoch(2, {});
  const RunPosition at{.step = 10, .sequences_seen = 40};
  for (const auto& [micro, last] : {std::pair<int64_t, int64_t>{1, 38}, {4, 17}, {2, 24}}) {
    RunConfig now = one_epoch(micro, at);
    INFO(micro);
    CHECK(now.max_steps == last);
    const ResumedSchedule resumed = after(before, 10, now);
    CHECK(resumed.warning.empty());
    now.resumed_schedule = resumed.schedule;
    for (int64_t update = 11; update <= last; ++update) {
      // Sequences seen after the update, in steps of the first batch.
      const auto sequences = static_cast<double>(40 + (update - 10) * 2 * micro);
      const double progress = (sequences / 4 - 1 - 4) / (24 - 4);
      CHECK(now.lr(update) == Approx(5e-5 * 0.5 * (1 + std::cos(std::numbers::pi * progress))).epsilon(1e-9));
    }
    // The checkpoint of such a run continues the same way.
    const RunPosition later{.step = 12, .sequences_seen = 40 + 2 * 2 * micro};
    const RunConfig again = one_epoch(micro, later);
    const ResumedSchedule continued = after(now, 12, again);
    CHECK((continued.schedule ? *continued.schedule : again.schedule).lr(14) == now.lr(14));
  }
}

TEST_CASE("a different number of epochs is a different length, even with a different batch size") {
  const RunConfig before = one_epoch(2, {});
  const RunPosition at{.step = 24, .sequences_seen = 96};
  const RunConfig longer = one_epoch(1, at, 2);
  CHECK(longer.max_steps == 24 + 48);
  const ResumedSchedule resumed = after(before, 24, longer);
  REQUIRE(resumed.schedule);
  CHECK_THAT(resumed.warning, Contains("warms up again"));
  CHECK(resumed.schedule->lr(25) == before.schedule.lr(24));
  CHECK(resumed.schedule->lr(24 + 3) == Approx(5e-5).epsilon(0.001));  // 4 warm-up steps of 96 are 2 of 48
}

TEST_CASE("twice the epochs in the same number of steps is a different length") {
  const RunConfig before = one_epoch(2, {});
  const RunConfig longer = one_epoch(4, {.step = 12, .sequences_seen = 48}, 2);
  CHECK(longer.max_steps == 12 + (192 - 48) / 8);
  const ResumedSchedule resumed = after(before, 12, longer);
  REQUIRE(resumed.schedule);
  CHECK_FALSE(resumed.warning.empty());
  CHECK(resumed.schedule->lr(24) > 0.1 * 5e-5);  // after as many sequences as before in all
  CHECK(resumed.schedule->lr(30) < 0.02 * 5e-5);
}

TEST_CASE("a second warm-up and decay fill all remaining steps of the epochs") {
  const RunConfig before = one_epoch(2, {});
  // 96 sequences are 9.6 steps of 10, and 4.4 of these steps are done: 5 whole ones remain.
  const RunConfig now = one_epoch(5, {.step = 11, .sequences_seen = 44}, 1, {"--schedule_on_resume=rewarm"});
  CHECK(now.max_steps == 16);
  const auto chosen = after(before, 11, now).schedule;
  REQUIRE(chosen);
  CHECK(chosen->time(12) == 1);
  CHECK(chosen->time(16) == Approx(9));
}

TEST_CASE("a learning rate that the checkpoint does not record cannot be kept") {
  const RunConfig now = config_of({"--max_steps=40", "--schedule_on_resume=keep"});
  io::testing::StubCheckpoint unknown;
  unknown.by_mpzero = false;
  CHECK_THAT(error_from([&] { schedule_after(unknown, now, json::object()); }),
             Contains("--schedule_on_resume keep") && Contains("use extend"));
}

}  // namespace
}  // namespace mpzero
