// The run itself, in the test program, with one rank and with two. What a launcher adds is in tests/e2e.

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/train/trainer.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "tests/app/captured_output.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

std::vector<nlohmann::json> lines_of(const std::filesystem::path& metrics) {
  std::ifstream file(metrics);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// All states of all parameters.
std::vector<float> values_of(const std::filesystem::path& checkpoint) {
  const std::unique_ptr<io::StoredCheckpoint> opened = io::open_checkpoint(checkpoint);
  std::vector<float> all;
  for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
    for (const ParameterSpec& parameter : opened->parameters()) {
      std::vector<float> values(static_cast<size_t>(parameter.numel()));
      opened->read(parameter.name, kind, 0, values);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

// Asks this process to stop once the first step is done: before that, watchdog would end the process.
std::jthread ask_after_first_step(const TinyTraining& run) {
  return std::jthread([&run](const std::stop_token& given_up) {
    while (lines_of(run.metrics()).empty()) {
      if (given_up.stop_requested()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(::getpid(), SIGUSR1);
  });
}

// A signal that arrives when the run has ended already does not end the test program.
class LateSignals {
 public:
  LateSignals() : before_(::signal(SIGUSR1, [](int) {})) {}
  ~LateSignals() { ::signal(SIGUSR1, before_); }
  LateSignals(const LateSignals&) = delete;
  LateSignals& operator=(const LateSignals&) = delete;

 private:
  sighandler_t before_;
};

}  // namespace

TEST_CASE("a run trains to its last step, reduces the loss, and saves that step") {
  const TinyTraining run;
  CHECK(run.train({"--max_steps=12", "--checkpoint_freq=5"}) == TrainingEnd::kFinished);
  const std::vector<nlohmann::json> lines = lines_of(run.metrics());
  REQUIRE(lines.size() == 12);
  for (size_t i = 0; i < lines.size(); ++i) CHECK(lines[i]["step"] == i + 1);
  CHECK(lines.back()["loss"].get<double>() < lines.front()["loss"].get<double>() - 0.5);
  for (const int step : {5, 10, 12}) CHECK(io::open_checkpoint(run.checkpoint(step))->progress().step == step);
  // Each token counts once: 2 sequences of 16 tokens, accumulated twice.
  CHECK(io::open_checkpoint(run.checkpoint(12))->progress().tokens_seen ==
        12 * 2 * 2 * 16 * parallel::mpi().world_size());
}

TEST_CASE("a mixture continues with the same sequences after a resume, and records its position in each file") {
  const TinyTraining run;
  on_rank_0([&] { io::testing::write_token_file(run.folder() / "other.h5", std::vector<uint16_t>(2000, 7), 64); });
  const std::string folder = run.folder().string();
  const std::string data = fmt::format("--train_data={0}/train.h5:1,{0}/other.h5:3", folder);
  CHECK(run.train({data, "--max_steps=6", "--checkpoint_freq=3"}) == TrainingEnd::kFinished);
  const std::vector<float> whole = values_of(run.checkpoint(6));
  const auto sources_at_end = [](const std::filesystem::path& checkpoint) {
    const auto settings = nlohmann::json::parse(io::open_checkpoint(checkpoint)->progress().settings_json);
    return settings.at("train_data").at("sources");
  };
  const nlohmann::json sources = sources_at_end(run.checkpoint(6));
  const int64_t sequences = 6 * 2 * 2 * parallel::mpi().world_size();
  CHECK(sources[0]["sequences_seen"] == sequences / 4);
  CHECK(sources[1]["sequences_seen"] == sequences / 4 * 3);
  CHECK(run.train({data, "--max_steps=6", "--resume_from_checkpoint=" + run.checkpoint(3).string(),
                   fmt::format("--checkpoint_dir={}/again", folder),
                   fmt::format("--metrics_file={}/again.jsonl", folder)}) == TrainingEnd::kFinished);
  const std::filesystem::path again = run.folder() / "again" / "model-6steps";
  CHECK(values_of(again) == whole);
  CHECK(sources_at_end(again) == sources);
}

TEST_CASE("a completed run does not train further") {
  const TinyTraining run;
  run.train({"--max_steps=2"});
  CHECK(run.train({"--max_steps=2"}) == TrainingEnd::kFinished);
  CHECK(lines_of(run.metrics()).size() == 2);
}

TEST_CASE("a stopped run saves, and after a resume is bitwise equal to an uninterrupted run") {
  const TinyTraining stopped;
  std::jthread asks;
  const TrainingEnd end = stopped.train({"--max_steps=1000000", "--checkpoint_freq=0"}, [&] {
    // One of the ranks: all stop after the same step.
    if (is_rank_0()) asks = ask_after_first_step(stopped);
  });
  CHECK(end == TrainingEnd::kStopped);
  const auto step = static_cast<int64_t>(lines_of(stopped.metrics()).size());
  REQUIRE(io::open_checkpoint(stopped.checkpoint(step))->progress().step == step);

  const std::string last = fmt::format("--max_steps={}", step + 3);
  CHECK(stopped.train({last}) == TrainingEnd::kFinished);
  const TinyTraining straight;
  CHECK(straight.train({last}) == TrainingEnd::kFinished);
  CHECK(values_of(stopped.checkpoint(step + 3)) == values_of(straight.checkpoint(step + 3)));
  const std::vector<nlohmann::json> lines = lines_of(stopped.metrics());
  REQUIRE(lines.size() == static_cast<size_t>(step + 3));
  CHECK(lines.back()["loss"] == lines_of(straight.metrics()).back()["loss"]);
}

TEST_CASE("a run that receives a stop request during its last step completes") {
  const TinyTraining run;
  const LateSignals late;
  std::jthread asks;
  // The validation after the last step is long enough for the signal.
  const std::vector<std::string> flags = {"--max_steps=2", "--validation_freq=1000", "--validation_sequences=0",
                                          "--validation_data=" + (run.folder() / "train.h5").string()};
  const TrainingEnd end = run.train(flags, [&] {
    if (is_rank_0()) asks = ask_after_first_step(run);
  });
  CHECK(end == TrainingEnd::kFinished);
  CHECK(io::open_checkpoint(run.checkpoint(2))->progress().step == 2);
}

TEST_CASE("a NaN loss or gradient norm ends the run after the pending save") {
  for (const auto& [lr, problem] : {std::pair("3e38", "the loss is NaN at step 2: "),
                                    {"1e30", "the gradient norm is NaN at step 2 while the loss is finite: "}}) {
    const TinyTraining run;
    on_rank_0([&] {
      std::ofstream(run.folder() / "ds_config.json") << fmt::format(R"({{"train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1, "bf16": {{"enabled": false}},
        "optimizer": {{"type": "AdamW", "params": {{"lr": {}}}}}, "zero_optimization": {{"stage": 2}}}})",
                                                                    lr);
    });
    const CapturedOutput output;
    CHECK_THROWS_WITH(run.train({"--max_steps=9", "--checkpoint_freq=1", "--lr_scheduler_type=constant"}),
                      Contains(problem + std::string("there is no checkpoint yet; lower the learning rate")));
    CHECK_THAT(output.text(), Contains("Waiting for the save of step 1"));
    CHECK(io::open_checkpoint(run.checkpoint(1))->progress().step == 1);
    CHECK_FALSE(std::filesystem::exists(run.checkpoint(2)));
  }
}

}  // namespace mpzero
