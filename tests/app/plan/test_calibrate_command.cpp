#include "app/plan/calibrate_command.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero::plan {

TEST_CASE("the flags of a calibration") {
  CHECK(asks_to_calibrate({"--device", "cpu", "--calibrate=f.json"}));
  CHECK(asks_to_calibrate({"--calibrate"}));
  CHECK_FALSE(asks_to_calibrate({"--calibrate_seconds", "3"}));
  const std::string usage = "mpzero plan --calibrate FILE [--device auto|cuda|cpu] [--calibrate_seconds N]";
  const auto error = [](const std::vector<std::string>& arguments) {
    return error_from([&] { calibrate_command(arguments); });
  };
  CHECK(error({}) == "--calibrate FILE is missing; usage: " + usage);
  CHECK(error({"--calibrate"}) == "--calibrate needs a value; usage: " + usage);
  CHECK(error({"--calibrate", "--device", "cpu"}) == "--calibrate needs a value; usage: " + usage);
  CHECK(error({"--calibrate", "f", "--calibrate=g"}) == "--calibrate is given twice; keep one of the two");
  CHECK(error({"--calibrate", "f", "--nodes", "4"}) == "\"--nodes\" is not a flag of --calibrate; usage: " + usage);
  CHECK(error({"--calibrate", "f", "--device", "tpu"}) == "--device must be auto, cuda or cpu, not \"tpu\"");
  for (const char* seconds : {"soon", "0", "-1", "1e9", "5s"}) {
    CHECK(error({"--calibrate", "f", "--calibrate_seconds", seconds}) ==
          "--calibrate_seconds must be a number of seconds, not \"" + std::string(seconds) + "\"");
  }
}

}  // namespace mpzero::plan
