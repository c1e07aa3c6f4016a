#include <fstream>
#include <nlohmann/json.hpp>

#include "app/health/stop_report.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero {

using io::testing::TemporaryFolder;

TEST_CASE("stop.json contains the job, the reason and the hosts, for any encoding of the reason") {
  const TemporaryFolder folder;
  write_stop_report(folder.path(), {.job = "17", .restart = 2, .reason = "\xff", .hosts = {"node1", "node7"}});
  const nlohmann::json report = nlohmann::json::parse(std::ifstream(folder.path() / "stop.json"));
  CHECK(report.size() == 4);
  CHECK((report.at("job") == "17" && report.at("restart") == 2 && report.at("reason") == "\xef\xbf\xbd"));
  CHECK(report.at("hosts") == std::vector<std::string>{"node1", "node7"});
}

TEST_CASE("a missing folder is an error") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(write_stop_report(folder.path() / "none", {}), Error);
}

}  // namespace mpzero
