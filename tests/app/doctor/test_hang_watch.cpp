#include <sys/stat.h>

#include <future>
#include <nlohmann/json.hpp>

#include "app/doctor/doctor_options.hpp"
#include "app/doctor/hang_watch.hpp"
#include "base/error.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::doctor {
namespace {

constexpr Look kDriver = {"gpus", "the GPU driver", "leave the host out"};
constexpr std::chrono::milliseconds kShort(20);
// Only distinguishes an end from a hang.
constexpr std::chrono::seconds kLong(60);

// The last words of a watch that hangs after `begin`.
std::string last_message(const std::string& json, const std::function<void(HangWatch&)>& begin) {
  std::promise<std::string> message;
  std::future<std::string> future = message.get_future();
  HangWatch watch("node7", json, {.id = "41", .restart = 2}, kShort,
                  [&](const std::string& sentence) { message.set_value(sentence); });
  begin(watch);
  REQUIRE(future.wait_for(kLong) == std::future_status::ready);
  return future.get();
}

}  // namespace

TEST_CASE("a check that hangs is reported in a report of its host alone") {
  const FakeRoot root;
  const std::string json = (root.path() / "doctor.json").string();
  CHECK(hang_report(json, "node7") == root.path() / "doctor.json.node7.hung");
  const std::string message = last_message(json, [](HangWatch& watch) { watch.enter(kDriver); });
  CHECK(message == "node7: the GPU driver has not responded 0 s after the doctor started; leave the host out");
  std::ifstream file(hang_report(json, "node7"));
  const auto report = nlohmann::json::parse(file);
  CHECK(report.at("job") == "41");
  CHECK(report.at("restart") == 2);
  REQUIRE(report.at("hosts").size() == 1);
  CHECK(report.at("hosts")[0].at("host") == "node7");
  CHECK(report.at("hosts")[0].at("status") == "failure");
  REQUIRE(report.at("hosts")[0].at("findings").size() == 1);
  const auto& finding = report.at("hosts")[0].at("findings")[0];
  CHECK(finding.at("check") == "gpus");
  CHECK(finding.at("status") == "failure");
  CHECK(finding.at("blame") == "host");
  CHECK(finding.at("remedy") == "leave the host out");
}

TEST_CASE("a rank that waits for others lets them report") {
  const FakeRoot root;
  const std::string json = (root.path() / "doctor.json").string();
  const std::string message = last_message(json, [](HangWatch& watch) {
    watch.enter(kDriver);
    watch.leave();
  });
  CHECK_THAT(message, Catch::Contains("node7 has waited for other ranks"));
  CHECK_FALSE(std::filesystem::exists(hang_report(json, "node7")));
}

TEST_CASE("a report whose folder is missing, or whose file system hangs, delays no rank") {
  const FakeRoot root;
  const auto begin = [](HangWatch& watch) { watch.enter(kDriver); };
  CHECK_THAT(last_message((root.path() / "absent/doctor.json").string(), begin), Catch::Contains("the GPU driver"));
  CHECK_THAT(last_message("", begin), Catch::Contains("the GPU driver"));
  const std::string json = (root.path() / "doctor.json").string();
  // Opening it waits for a reader; the file is written there first.
  const std::string file = hang_report(json, "node7").string() + ".tmp";
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK_THAT(last_message(json, begin), Catch::Contains("the GPU driver"));
  std::ifstream(file).get();
}

TEST_CASE("--patience is a whole number of seconds") {
  CHECK(parse_options({}).patience() == std::chrono::seconds(900));
  CHECK(parse_options({"--quick"}).patience() == std::chrono::seconds(120));
  CHECK(parse_options({"--quick", "--patience=7"}).patience() == std::chrono::seconds(7));
  for (const char* word : {"0", "-1", "soon", "3s", "1.5"}) {
    CHECK_THROWS_AS(parse_options({std::string("--patience=") + word}), UserError);
  }
}

}  // namespace mpzero::doctor
