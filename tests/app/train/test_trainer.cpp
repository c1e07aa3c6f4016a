// The run itself, in this process. What several ranks and a launcher add is in tests/e2e.

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/train/trainer.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

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

}  // namespace

TEST_CASE("a run trains to its last step, learns, and saves that step") {
  const TinyTraining run;
  CHECK(run.train({"--max_steps=12", "--checkpoint_freq=5"}) == TrainingEnd::kFinished);
  const std::vector<nlohmann::json> lines = lines_of(run.metrics());
  REQUIRE(lines.size() == 12);
  for (size_t i = 0; i < lines.size(); ++i) CHECK(lines[i]["step"] == i + 1);
  CHECK(lines.back()["loss"].get<double>() < lines.front()["loss"].get<double>() - 0.5);
  for (const int step : {5, 10, 12}) CHECK(io::open_checkpoint(run.checkpoint(step))->progress().step == step);
  // Each token counts once: 2 sequences of 16 tokens, accumulated twice.
  CHECK(io::open_checkpoint(run.checkpoint(12))->progress().tokens_seen == 12 * 2 * 2 * 16);
}

TEST_CASE("a run that has finished trains no further") {
  const TinyTraining run;
  run.train({"--max_steps=2"});
  CHECK(run.train({"--max_steps=2"}) == TrainingEnd::kFinished);
  CHECK(lines_of(run.metrics()).size() == 2);
}

TEST_CASE("a run that is asked to stop saves, and resumes with the bits of one that never stopped") {
  const TinyTraining stopped;
  std::jthread asks;
  const TrainingEnd end = stopped.train({"--max_steps=1000000", "--checkpoint_freq=0"}, [&] {
    asks = std::jthread([&](const std::stop_token& given_up) {
      // Before the first step is done, liveness would end the process.
      while (lines_of(stopped.metrics()).empty()) {
        if (given_up.stop_requested()) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ::kill(::getpid(), SIGUSR1);
    });
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

}  // namespace mpzero
