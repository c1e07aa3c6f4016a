#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "app/machine/system.hpp"
#include "app/train/stop_agreement.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "tests/app/captured_output.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"
#include "tests/setting.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

// A run after step 3 of which the last rank was asked to stop.
class AskedToStop {
 public:
  // `seconds_left`: the program itself asks, as for a notice of EC2, so long before the host ends; none: a signal asks.
  explicit AskedToStop(std::vector<std::string> flags, std::optional<double> seconds_left = std::nullopt)
      : setup_(run_.set_up(with_steps(std::move(flags)))),
        tiny_(setup_),
        log_(setup_.config, parallel::mpi(), std::nullopt),
        folder_(setup_.config, parallel::mpi(), log_),
        checkpointer_(setup_, tiny_.decoder.units(), tiny_.engine, at::kCPU, parallel::mpi(), log_, folder_) {
    folder_.open();
    setup_.run = folder_.identify(std::nullopt);
    std::vector<std::string> warnings;
    initialize_run(setup_, tiny_.engine, parallel::mpi(), warnings);
    if (is_last_rank() && seconds_left) request_.request("the end of host x", *seconds_left);
    if (is_last_rank() && !seconds_left) ::raise(SIGUSR1);
  }

  std::string save_and_stop() {
    const StopAgreement agreement(request_, setup_.config, parallel::mpi(), log_);
    CHECK(agreement.vote() == (is_last_rank() ? 1 : 0));
    return agreement.save_and_stop({.step = 3, .sequences_seen = 12, .tokens_seen = 192}, checkpointer_);
  }
  Checkpointer& checkpointer() { return checkpointer_; }
  // The text of stop.json; empty: there is none.
  std::string report() const {
    std::ifstream file(std::filesystem::path(setup_.config.checkpoint_dir) / "stop.json");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool is_saved() const { return std::filesystem::exists(run_.checkpoint(3)); }

 private:
  static std::vector<std::string> with_steps(std::vector<std::string> flags) {
    flags.emplace_back("--max_steps=100");
    return flags;
  }
  static bool is_last_rank() { return parallel::mpi().rank() + 1 == parallel::mpi().world_size(); }

  StopRequest request_;
  TinyTraining run_;
  RunSetup setup_;
  TinyEngine tiny_;
  StepLog log_;
  RunFolder folder_;
  Checkpointer checkpointer_;
};

std::string reason() { return parallel::mpi().world_size() == 1 ? "SIGUSR1" : "SIGUSR1 to rank 1"; }

}  // namespace

TEST_CASE("a stopped run saves and reports the signal") {
  const CapturedOutput output;
  AskedToStop run({"--grace_period=0"});
  CHECK(run.save_and_stop() == reason());
  CHECK(run.is_saved());
  CHECK_THAT(output.text(), Contains("Stopping on " + reason() + " after step 3: saving") &&
                                Contains("and saved a checkpoint: the same command resumes the run"));
}

TEST_CASE("a stopped run of a launch script reports what SIGUSR1 stands for") {
  const Setting start("MPZERO_START_FILE", "start");
  const CapturedOutput output;
  AskedToStop run({"--grace_period=0"});
  CHECK(run.save_and_stop() == reason());
  CHECK_THAT(output.text(), Contains("Stopping on " + reason() + ", which the launch script sends for Ctrl-C"));
}

TEST_CASE("a run saves within the grace period") {
  AskedToStop run({"--grace_period=3600"});
  run.save_and_stop();
  CHECK(run.is_saved());
}

TEST_CASE("a run that exceeds the grace period stops without saving and fails") {
  AskedToStop run({"--grace_period=1e-9"});
  CHECK_THROWS_WITH(run.save_and_stop(), Contains("stopped by " + reason() + " after step 3 without saving") &&
                                             Contains("there is no checkpoint yet; request more time"));
  CHECK_FALSE(run.is_saved());
}

TEST_CASE("a step that is already saved needs no grace period") {
  AskedToStop run({"--grace_period=1e-9"});
  run.checkpointer().resumed_from(3);
  CHECK_NOTHROW(run.save_and_stop());
  CHECK_FALSE(run.is_saved());
}

TEST_CASE("stop.json lists the host whose shutdown stops the run") {
  const CapturedOutput output;
  AskedToStop run({"--grace_period=0"}, 3600);
  run.save_and_stop();
  CHECK(run.is_saved());
  CHECK_THAT(output.text(), Contains("Stopped by the end of host x after step 3 and saved"));
  if (parallel::mpi().rank() != 0) return;
  const nlohmann::json report = nlohmann::json::parse(run.report());
  CHECK(report["reason"] == "the end of host x");
  CHECK(report["hosts"] == std::vector{doctor::host_name(doctor::System{})});
}

TEST_CASE("stops without saving if the host shuts down before a save could finish") {
  AskedToStop run({"--grace_period=0"}, 1e-9);
  CHECK_THROWS_WITH(run.save_and_stop(), Contains("stopped by the end of host x after step 3 without saving") &&
                                             Contains("0.0 s were left; there is no checkpoint yet"));
  CHECK_FALSE(run.is_saved());
  CHECK((parallel::mpi().rank() != 0 || !run.report().empty()));
}

TEST_CASE("the earlier of grace period and host shutdown applies") {
  CHECK_THROWS_WITH(AskedToStop({"--grace_period=1e-9"}, 3600).save_and_stop(), Contains("without saving"));
  CHECK_THROWS_WITH(AskedToStop({"--grace_period=3600"}, 1e-9).save_and_stop(), Contains("without saving"));
}

TEST_CASE("a signal writes no stop.json") {
  AskedToStop run({"--grace_period=0"});
  run.save_and_stop();
  CHECK(run.report().empty());
}

}  // namespace mpzero
