#include "app/config/run_config.hpp"
#include "app/flags/options.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

RunConfig config_of(std::vector<std::string> flags, std::vector<std::string>& warnings) {
  flags.emplace_back("--train_data=t.h5");
  return resolve(parse_command_line(flags), io::DsConfig{}, 1, ModelDims{.hidden_size = 64}, warnings);
}

RunConfig config_of(const std::vector<std::string>& flags) {
  std::vector<std::string> warnings;
  return config_of(flags, warnings);
}

}  // namespace

TEST_CASE("--profile_steps is a range of steps or a single step") {
  CHECK_FALSE(config_of({}).profile_steps.has_value());
  const RunConfig config =
      config_of({"--profile_steps=12-34", "--profile_ranks=all", "--profile_dir=traces", "--max_steps=34"});
  CHECK(config.profile_steps->first == 12);
  CHECK(config.profile_steps->last == 34);
  CHECK(config.profile_all_ranks);
  CHECK(config.profile_dir == "traces");
  const RunConfig single = config_of({"--profile_steps", "7"});
  CHECK(single.profile_steps->first == 7);
  CHECK(single.profile_steps->last == 7);
  CHECK_FALSE(single.profile_all_ranks);
}

TEST_CASE("invalid --profile_steps are refused in one sentence") {
  for (const char* value : {"x", "3-", "-3", "0-2", "1-2-3", "1.5-2", "2-99999999999999999999"}) {
    INFO(value);
    CHECK_THROWS_WITH(config_of({std::string("--profile_steps=") + value}),
                      Catch::Contains("--profile_steps") && Catch::EndsWith(fmt::format("not \"{}\".", value)));
  }
  CHECK_THROWS_WITH(config_of({"--profile_steps=3-2"}), "--profile_steps 3-2 ends before it begins; did you mean 2-3?");
  CHECK_THROWS_WITH(config_of({"--profile_steps=8-11", "--max_steps=10"}),
                    Catch::Contains("--profile_steps 8-11 extends past the run's last step, 10"));
  CHECK_THROWS_AS(config_of({"--profile_steps=8-11", "--max_steps=10"}), UserError);
  CHECK_THROWS_WITH(config_of({"--profile_steps=1-2", "--profile_ranks=3"}),
                    Contains("--profile_ranks must be one of 0, all"));
}

TEST_CASE("with --epochs, the last step to profile is checked once the data is known") {
  std::vector<std::string> warnings;
  RunConfig config = config_of({"--profile_steps=8-11", "--epochs=1", "--warmup_steps=1"});
  CHECK_THROWS_WITH(apply_epochs(config, 10, warnings), Contains("extends past the run's last step, 10"));
  config = config_of({"--profile_steps=8-11", "--epochs=1", "--warmup_steps=1"});
  apply_epochs(config, 11, warnings);
  CHECK(config.max_steps == 11);
}

TEST_CASE("--profile_dir without --profile_steps causes a warning") {
  std::vector<std::string> warnings;
  config_of({"--profile_dir=d"}, warnings);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front() == "--profile_dir has no effect without --profile_steps.");
}

}  // namespace mpzero
