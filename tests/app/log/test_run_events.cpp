#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/log/run_events.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using namespace mpzero::io::testing;
using nlohmann::json;

namespace {

const std::string run = "00000000aaaaaaaa";

std::vector<json> events_in(const std::filesystem::path& folder) {
  std::ifstream file(folder / "events.jsonl");
  std::vector<json> events;
  for (std::string line; std::getline(file, line);) events.push_back(json::parse(line));
  return events;
}

json summary_in(const std::filesystem::path& folder) {
  std::ifstream file(folder / "summary.json");
  return json::parse(file);
}

void fail(const std::string& warning) { FAIL(warning); }

}  // namespace

TEST_CASE("an attempt writes its events, and the run's summary at its end") {
  const TemporaryFolder folder;
  const auto make = [&](const char* start) {
    return RunEvents({folder.path(), run, start}, {{"began", 1e9}, {"gpus", 2}}, fail);
  };
  RunEvents killed = make("a");
  killed.count_step(2, 100);
  killed.checkpoint(1, 0.5, 4000, 0.25);
  killed.count_step(2, 100);  // lost
  RunEvents events = make("b");
  for (int step = 0; step < 9; ++step) events.count_step(1, 100);
  events.count_step(3.5, 100);
  events.warning("rank 1 is slow");
  const std::string line = events.end("stopped", "SIGUSR1");
  CHECK(line.starts_with("Run 00000000aaaaaaaa: 11 steps, "));
  CHECK(line.find("1 checkpoint, 1 restart, 1 step longer than 3x the median, ") != std::string::npos);

  const std::vector<json> all = events_in(folder.path());
  REQUIRE(all.size() == 5);
  const json& save = all[1];
  CHECK((save["event"] == "checkpoint" && save["step"] == 1 && save["seconds"] == 0.5 && save["bytes"] == 4000));
  CHECK((save["paused_seconds"] == 0.25 && save["steps"] == 1 && save["tokens"] == 100));
  CHECK((all[3]["event"] == "warning" && all[3]["start"] == "b"));
  CHECK((all[4]["event"] == "end" && all[4]["status"] == "stopped" && all[4]["reason"] == "SIGUSR1"));
  CHECK((all[4]["steps"] == 10 && all[4]["step_seconds"] == 12.5 && all[4]["stalls"] == 1));

  const json summary = summary_in(folder.path());
  CHECK((summary["run"] == run && summary["status"] == "stopped" && summary["starts"] == 2 && summary["steps"] == 11));
}

TEST_CASE("short runs have no stalls") {
  const TemporaryFolder folder;
  RunEvents events({folder.path(), run, "a"}, json::object(), fail);
  for (const double seconds : {3.5, 1.0, 1.0, 1.0}) events.count_step(seconds, 100);
  CHECK(events.end("finished", "").find("median") == std::string::npos);
  CHECK(events_in(folder.path()).back()["stalls"] == 0);
}

TEST_CASE("an attempt ends once") {
  const TemporaryFolder folder;
  RunEvents events({folder.path(), run, "a"}, json::object(), fail);
  CHECK_FALSE(events.end("failed", "rank 1 was killed").empty());
  CHECK(events.end("finished", "").empty());
  CHECK(events_in(folder.path()).size() == 2);
  CHECK(summary_in(folder.path())["status"] == "failed");
}

TEST_CASE("the summary of a killed attempt does not report the end of the run") {
  const TemporaryFolder folder;
  RunEvents({folder.path(), run, "a"}, json::object(), fail).end("finished", "");
  const RunEvents killed({folder.path(), run, "b"}, json::object(), fail);
  const json summary = summary_in(folder.path());
  CHECK((summary["status"] == "running" && summary["starts"] == 2));
}

TEST_CASE("another process records the end of an attempt whose process died") {
  const TemporaryFolder folder;
  const StartRecord start = {folder.path(), run, "b"};
  CHECK(end_start(start, "failed", "rank 0 was killed", fail).empty());
  CHECK_FALSE(std::filesystem::exists(folder / "events.jsonl"));
  RunEvents({folder.path(), run, "a"}, json::object(), fail).end("stopped", "");
  RunEvents killed(start, json::object(), fail);
  killed.count_step(2, 100);
  killed.checkpoint(1, 0.5, 4000, 0.25);
  CHECK(end_start({folder.path(), "00000000bbbbbbbb", "b"}, "failed", "", fail).empty());
  CHECK(end_start({folder.path(), run, "a"}, "failed", "", fail).empty());
  CHECK(end_start(start, "failed", "rank 0 was killed", fail).starts_with("Run 00000000aaaaaaaa: 1 step, "));
  CHECK(end_start(start, "failed", "again", fail).empty());
  const json end = events_in(folder.path()).back();
  CHECK((end["event"] == "end" && end["start"] == "b" && end["reason"] == "rank 0 was killed"));
  const json summary = summary_in(folder.path());
  CHECK((summary["status"] == "failed" && summary["reason"] == "rank 0 was killed" && summary["steps"] == 1));
}

TEST_CASE("a summary that cannot be written causes a warning with its path") {
  const TemporaryFolder folder;
  std::string warning;
  RunEvents events({folder.path(), run, "a"}, json::object(), [&](const std::string& text) { warning = text; });
  std::filesystem::remove(folder / "summary.json");
  std::filesystem::create_directories(folder / "summary.json/in the way");
  CHECK_FALSE(events.end("finished", "").empty());
  CHECK_THAT(warning, Catch::Contains("summary.json"));
}
