#include <nlohmann/json.hpp>

#include "app/checkpoint/resume_schedule.hpp"
#include "app/config/settings_table.hpp"
#include "tests/app/resolved_run.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;
using nlohmann::json;

constexpr const char* kFile = R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 4, "cos_min_ratio": 0.1}}})";

// The checkpoint of a run of these settings after `step`; of its files only the progress exists.
class Saved final : public io::StoredCheckpoint {
 public:
  Saved(const RunConfig& config, int64_t step) {
    progress_.step = step;
    progress_.lr = config.lr(step);
    progress_.settings_json = settings_record(config).dump();
  }
  const std::filesystem::path& folder() const override { return folder_; }
  const io::RunRecord& run() const override { return record_; }
  const io::TrainingProgress& progress() const override { return progress_; }
  std::span<const ParameterSpec> parameters() const override { return {}; }
  void read(const std::string&, StateKind, int64_t, std::span<float>) const override {}
  void verify_what_was_read(ProcessGroup&) const override {}
  void verify() const override {}

 private:
  std::filesystem::path folder_ = "checkpoints/tiny-5steps";
  io::RunRecord record_;
  io::TrainingProgress progress_;
};

RunConfig config_of(const std::vector<std::string>& flags) { return run(kFile, flags).config; }

ResumedSchedule after(const RunConfig& before, int64_t step, const RunConfig& now) {
  const Saved saved(before, step);
  return schedule_after(saved, now, json::parse(saved.progress().settings_json));
}

TEST_CASE("the same settings leave the schedule alone") {
  const ResumedSchedule same = after(config_of({"--max_steps=20"}), 20, config_of({"--max_steps=20"}));
  CHECK_FALSE(same.schedule);
  CHECK(same.warning.empty());
  CHECK(same.line.empty());
}

TEST_CASE("a longer run keeps the last rate, and its next start what the checkpoint records") {
  const RunConfig before = config_of({"--max_steps=20"});
  RunConfig now = config_of({"--max_steps=40"});
  const ResumedSchedule longer = after(before, 20, now);
  REQUIRE(longer.schedule);
  for (int64_t update = 21; update <= 40; ++update) CHECK(longer.schedule->lr(update) == before.schedule.lr(20));
  CHECK_THAT(longer.warning, Contains("is kept") && Contains("at step 21") && Contains("extend has"));
  now.resumed_schedule = longer.schedule;
  const ResumedSchedule again = after(now, 30, config_of({"--max_steps=40"}));
  REQUIRE(again.schedule);
  CHECK(again.schedule->lr(31) == before.schedule.lr(20));
  CHECK(again.warning.empty());
}

TEST_CASE("each way is what it says") {
  const RunConfig before = config_of({"--max_steps=20"});
  const auto chosen = [&](const char* way, int64_t step) {
    return *after(before, step, config_of({"--max_steps=40", std::string("--schedule_on_resume=") + way})).schedule;
  };
  const double lr = before.schedule.lr(10);
  CHECK(chosen("keep", 10).lr(15) == before.schedule.lr(15));
  CHECK(chosen("keep", 10).lr(40) == before.schedule.lr(20));
  CHECK(chosen("rewarm", 10).lr(11) == lr);
  CHECK(chosen("rewarm", 10).lr(15) == 1e-3);
  // The new decay of the 30 steps that remain.
  CHECK(chosen("rewarm", 10).lr(40) == config_of({"--max_steps=30"}).schedule.lr(30));
  CHECK(chosen("extend", 10).lr(11) == config_of({"--max_steps=40"}).schedule.lr(11));
}

TEST_CASE("without a warm-up a new decay begins at the checkpoint's rate") {
  const auto linear = [](const std::string& steps, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--lr_scheduler_type=linear", "--learning_rate=1e-3", "--max_steps=" + steps});
    return run("", flags).config;
  };
  const RunConfig before = linear("20", {});
  const auto chosen = after(before, 10, linear("40", {"--schedule_on_resume=rewarm"}));
  REQUIRE(chosen.schedule);
  CHECK(chosen.schedule->lr(11) == before.schedule.lr(10));
  CHECK(chosen.schedule->lr(26) == Approx(before.schedule.lr(10) / 2));
}

TEST_CASE("a length that does not change the next rate needs no choice") {
  const auto stable = [](const std::string& steps) {
    return run("", {"--lr_scheduler_type=warmup_stable_decay", "--num_decay_steps=5", "--max_steps=" + steps}).config;
  };
  CHECK_FALSE(after(stable("20"), 10, stable("40")).schedule);
  CHECK(after(stable("20"), 10, stable("40")).warning.empty());
}

TEST_CASE("a rate that the checkpoint does not record cannot be kept") {
  const RunConfig now = config_of({"--max_steps=40", "--schedule_on_resume=keep"});
  class Unknown final : public io::StoredCheckpoint {
   public:
    const std::filesystem::path& folder() const override { return folder_; }
    const io::RunRecord& run() const override { return record_; }
    const io::TrainingProgress& progress() const override { return progress_; }
    std::span<const ParameterSpec> parameters() const override { return {}; }
    bool made_by_mpzero() const override { return false; }
    void read(const std::string&, StateKind, int64_t, std::span<float>) const override {}
    void verify_what_was_read(ProcessGroup&) const override {}
    void verify() const override {}

   private:
    std::filesystem::path folder_;
    io::RunRecord record_;
    io::TrainingProgress progress_;
  };
  CHECK_THAT(error_from([&] { schedule_after(Unknown(), now, json::object()); }),
             Contains("--schedule_on_resume keep") && Contains("give extend"));
}

}  // namespace
}  // namespace mpzero
