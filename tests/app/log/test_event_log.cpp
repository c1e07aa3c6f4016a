#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/log/event_log.hpp"
#include "app/log/run_totals.hpp"
#include "base/text/times.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using namespace mpzero::io::testing;

namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("events are appended, each with its time") {
  const TemporaryFolder folder;
  const auto path = folder / "events.jsonl";
  const double before = seconds_since_1970();
  EventLog(path).write("start", {{"job", "7"}});
  EventLog log(path);
  log.write("warning", {{"text", "a name with \xff"}});
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 2);
  const auto first = nlohmann::json::parse(lines[0]), second = nlohmann::json::parse(lines[1]);
  CHECK((first["event"] == "start" && first["job"] == "7"));
  CHECK((first["time"] >= before && second["time"] >= first["time"]));
  CHECK(second["text"] == "a name with \xef\xbf\xbd");
}

TEST_CASE("an event after a line that a crash has cut has a line of its own") {
  const TemporaryFolder folder;
  const auto path = folder / "events.jsonl";
  std::ofstream(path) << R"({"event": "sta)";
  EventLog(path).write("start", nlohmann::ordered_json::object());
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 2);
  CHECK(nlohmann::json::parse(lines[1])["event"] == "start");
}

TEST_CASE("an event log that cannot be written says so") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(EventLog(folder / "none/events.jsonl"), Catch::Contains("cannot write event log"));
}

TEST_CASE("an event log that is no file is refused, and its totals wait for no one") {
  const TemporaryFolder folder;
  const auto path = folder / "events.jsonl";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(EventLog(path), Catch::Contains(path.string()) && Catch::Contains("FIFO"));
  CHECK(totals_of(path, "a").starts == 0);
}
