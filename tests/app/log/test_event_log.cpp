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

void fail(const std::string& warning) { FAIL(warning); }

}  // namespace

TEST_CASE("events are appended, each with its time") {
  const TemporaryFolder folder;
  const auto path = folder / "events.jsonl";
  const double before = seconds_since_1970();
  EventLog(path, fail).write("start", {{"job", "7"}});
  EventLog log(path, fail);
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
  EventLog(path, fail).write("start", nlohmann::ordered_json::object());
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 2);
  CHECK(nlohmann::json::parse(lines[1])["event"] == "start");
}

TEST_CASE("an event log that cannot be written warns once") {
  const TemporaryFolder folder;
  const auto fifo = folder / "events.jsonl";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const auto& path : {folder / "none/events.jsonl", fifo}) {
    std::vector<std::string> warnings;
    EventLog log(path, [&](const std::string& warning) { warnings.push_back(warning); });
    log.write("start", nlohmann::ordered_json::object());
    log.write("end", nlohmann::ordered_json::object());
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings[0], Catch::Contains(path.string()));
  }
  CHECK(totals_of(fifo, "a").starts == 0);
}
