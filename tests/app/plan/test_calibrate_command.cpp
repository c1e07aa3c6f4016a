#include "app/plan/calibrate_command.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero::plan {

TEST_CASE("parses the flags of a calibration") {
  CHECK(asks_to_calibrate({"--device", "cpu", "--calibrate=f.json"}));
  CHECK(asks_to_calibrate({"--calibrate"}));
  CHECK_FALSE(asks_to_calibrate({"--calibrate_seconds", "3"}));
  const std::string usage = "mpzero plan --calibrate FILE [--device auto|cuda|cpu] [--calibrate_seconds N]";
  const auto error = [](const std::vector<std::string>& arguments) {
    return error_from([&] { calibrate_command(arguments); });
  };
  CHECK(error({}) == "--calibrate FILE is missing; usage: " + usage);
  CHECK_THAT(error({"--calibrate"}), Catch::Contains("--calibrate needs a value"));
  CHECK_THAT(error({"--calibrate", "--device", "cpu"}), Catch::Contains("--calibrate needs a value"));
  CHECK_THAT(error({"--calibrate", "f", "--calibrate=g"}), Catch::Contains("--calibrate is given twice"));
  CHECK_THAT(error({"--calibrate", "f", "--nodes", "4"}), Catch::Contains("--nodes is not a flag"));
  CHECK_THAT(error({"--calibrate", "f", "--device", "tpu"}), Catch::Contains("auto, cuda, cpu, not \"tpu\""));
  for (const char* seconds : {"soon", "0", "-1", "1e9", "5s"}) {
    CHECK_THAT(error({"--calibrate", "f", "--calibrate_seconds", seconds}), Catch::Contains("--calibrate_seconds"));
  }
}

}  // namespace mpzero::plan
