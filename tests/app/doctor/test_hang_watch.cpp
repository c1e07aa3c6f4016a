#include <future>
#include <nlohmann/json.hpp>

#include "app/doctor/doctor_options.hpp"
#include "app/doctor/hang_watch.hpp"
#include "base/error.hpp"
#include "io/files/atomic_file.hpp"
#include "tests/app/captured_output.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::doctor {
namespace {

constexpr Look kDriver = {"gpus", "the GPU driver", "leave the host out"};
constexpr Look kFolder = {"checkpoint_write", "the folder", "leave the host out"};
constexpr std::chrono::milliseconds kShort(20);
// Only distinguishes an end from a hang.
constexpr std::chrono::seconds kLong(60);

void write_file(const std::filesystem::path& file, const std::string& text) { io::replace_text_file(file, text); }

// A file system that hangs until the end of the test.
class HangingFiles {
 public:
  ~HangingFiles() { end_.set_value(); }
  HangWatch::Write write() {
    return [end = end_.get_future().share()](const std::filesystem::path&, const std::string&) { end.wait(); };
  }

 private:
  std::promise<void> end_;
};

// The last words of a watch that hangs after `begin`.
std::string last_message(const std::string& json, const std::function<void(HangWatch&)>& begin,
                         const HangWatch::Write& write = write_file) {
  std::promise<std::string> message;
  std::future<std::string> future = message.get_future();
  HangWatch watch(
      "node7", json, {.id = "41", .restart = 2}, kShort,
      [&](const std::string& sentence) { message.set_value(sentence); }, write);
  begin(watch);
  REQUIRE(future.wait_for(kLong) == std::future_status::ready);
  return future.get();
}

}  // namespace

TEST_CASE("a hanging check is reported in a separate report of its host") {
  const FakeRoot root;
  const std::string json = (root.path() / "doctor.json").string();
  CHECK(hang_report(json, "node7") == root.path() / "doctor.json.node7.hung");
  const std::string message = last_message(json, [](HangWatch& watch) { watch.enter(kDriver); });
  CHECK(message ==
        "node7: the GPU driver has not responded within 0 s of the start of mpzero doctor; leave the host out");
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

TEST_CASE("a hanging check is reported on stderr before any file is written") {
  const FakeRoot root;
  const std::string json = (root.path() / "doctor.json").string();
  std::string text;
  {
    const CapturedOutput output;
    last_message(
        json, [](HangWatch& watch) { watch.enter(kDriver); },
        [&](const std::filesystem::path&, const std::string&) { text = output.text(); });
  }
  CHECK(text ==
        "mpzero: doctor: node7 hangs in gpus (job 41, restart 2): the GPU driver has not responded within 0 s of "
        "the start of mpzero doctor\n");
}

TEST_CASE("a waiting rank reports whether the folder of the report responds") {
  const FakeRoot root;
  const std::string json = (root.path() / "doctor.json").string();
  const std::string line =
      "mpzero: doctor: node7 responds in report (job 41, restart 2): the file system of the --json file responds; this "
      "host is waiting for other hosts\n";
  const auto printed = [&](const Look& look, const HangWatch::Write& write = write_file) {
    const CapturedOutput output;
    const auto wait = [&](HangWatch& watch) {
      watch.enter(look);
      watch.leave();
    };
    last_message(json, wait, write);
    return output.text();
  };
  CHECK(printed(kDriver).empty());
  CHECK_FALSE(std::filesystem::exists(answer_report(json, "node7")));
  CHECK(printed(kFolder) == line);
  std::ifstream file(answer_report(json, "node7"));
  const auto report = nlohmann::json::parse(file);
  CHECK(report.at("job") == "41");
  CHECK(report.at("hosts")[0].at("findings")[0].at("status") == "ok");
  CHECK_FALSE(std::filesystem::exists(hang_report(json, "node7")));
  HangingFiles files;
  CHECK(printed(kFolder, files.write()).empty());
}

TEST_CASE("a rank that waits for other ranks does not report a hang") {
  const FakeRoot root;
  const std::string json = (root.path() / "doctor.json").string();
  const std::string message = last_message(json, [](HangWatch& watch) {
    watch.enter(kDriver);
    watch.leave();
  });
  CHECK_THAT(message, Catch::Contains("node7 has been waiting for other ranks"));
  CHECK_FALSE(std::filesystem::exists(hang_report(json, "node7")));
}

TEST_CASE("a report whose folder is missing or hangs delays no rank") {
  const FakeRoot root;
  const auto begin = [](HangWatch& watch) { watch.enter(kDriver); };
  CHECK_THAT(last_message((root.path() / "absent/doctor.json").string(), begin), Catch::Contains("the GPU driver"));
  CHECK_THAT(last_message("", begin), Catch::Contains("the GPU driver"));
  HangingFiles files;
  const std::string json = (root.path() / "doctor.json").string();
  CHECK_THAT(last_message(json, begin, files.write()), Catch::Contains("the GPU driver"));
}

TEST_CASE("--patience is an integer number of seconds") {
  CHECK(parse_options({}).patience() == std::chrono::seconds(900));
  CHECK(parse_options({"--quick"}).patience() == std::chrono::seconds(120));
  CHECK(parse_options({"--quick", "--patience=7"}).patience() == std::chrono::seconds(7));
  for (const char* word : {"0", "-1", "soon", "3s", "1.5"}) {
    CHECK_THROWS_AS(parse_options({std::string("--patience=") + word}), UserError);
  }
}

}  // namespace mpzero::doctor
