#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/top/top_command.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "tests/app/captured_output.hpp"
#include "tests/app/http/stand_in_server.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using Catch::Contains;
using io::testing::TemporaryFolder;

namespace {

// One view of the run r1, whose host's endpoint gives such an answer.
std::string view_of_run(const std::string& answer, const std::string& host = "127.0.0.1",
                        const std::string& address = "0.0.0.0") {
  const StandInServer server([&](const std::string&) { return answer; });
  const TemporaryFolder folder;
  const nlohmann::json start = {{"event", "start"},
                                {"run", "r1"},
                                {"model_type", "tiny"},
                                {"hosts", {host}},
                                {"max_steps", 50},
                                {"metrics_address", address},
                                {"metrics_port", std::stoi(server.port())}};
  std::ofstream(folder.path() / "events.jsonl") << start.dump() << "\n";
  std::ofstream(folder.path() / "metrics.jsonl") << R"({"step":7,"loss":1.5,"run":"r1"})"
                                                 << "\n";
  const CapturedOutput output;
  CHECK(run_top_command({folder.path().string(), "--once"}) == 0);
  return output.text();
}

std::string page_of(const std::string& run) {
  return "mpzero_up{run_id=\"" + run + "\"} 1\nmpzero_gpu_utilization_ratio{gpu=\"0\"} 0.5\n";
}

}  // namespace

TEST_CASE("one view of a run, with what its node's endpoint says") {
  CHECK_THAT(view_of_run(StandInServer::page(200, page_of("r1"))),
             Contains("tiny  run r1  1 rank on 1 host\n") && Contains("127.0.0.1\n  GPU 0   50%\n"));
}

TEST_CASE("an endpoint of another run, or none, is not shown as the run's own") {
  const auto check = [](const std::string& answer, const std::string& problem) {
    INFO(answer);
    CHECK_THAT(view_of_run(answer), Contains(problem) && !Contains("GPU 0"));
  };
  check(StandInServer::page(200, page_of("r2")), "cannot be read: run r2 answers there");
  check(StandInServer::page(200, "<html>"), "cannot be read: no run answers there");
  check(StandInServer::page(404, page_of("r1")), "cannot be read: it answers with status 404");
}

TEST_CASE("on the run's own host its --metrics_address is asked") {
  const std::string page = StandInServer::page(200, page_of("r1"));
  CHECK_THAT(view_of_run(page, host_name(), "0.0.0.0"), Contains("GPU 0"));
  CHECK_THAT(view_of_run(page, host_name(), "127.0.0.1"), Contains("GPU 0"));
  // Where the endpoint does not listen.
  CHECK_THAT(view_of_run(page, host_name(), "127.0.0.2"), Contains("cannot be read") && !Contains("GPU 0"));
  CHECK_THAT(view_of_run(page, host_name(), "::"), Contains("cannot be read") && !Contains("GPU 0"));
}

TEST_CASE("of many hosts those that are not asked are counted") {
  const StandInServer server([](const std::string&) { return StandInServer::page(200, "x 1\n"); });
  const TemporaryFolder folder;
  std::string hosts = "\"127.0.0.1\"";
  for (int i = 2; i <= 40; ++i) hosts += fmt::format(",\"127.0.0.{}\"", i);
  std::ofstream(folder.path() / "events.jsonl")
      << R"({"event":"start","run":"r1","model_type":"tiny","hosts":[)" << hosts
      << R"(],"max_steps":50,"metrics_port":)" << server.port() << "}\n";
  std::ofstream(folder.path() / "metrics.jsonl") << R"({"step":7,"loss":1.5,"run":"r1"})"
                                                 << "\n";
  const CapturedOutput output;
  CHECK(run_top_command({folder.path().string(), "--once"}) == 0);
  CHECK_THAT(output.text(), Contains("\n8 more hosts: not asked\n"));
}

TEST_CASE("mistakes are named") {
  CHECK_THROWS_WITH(run_top_command({}), Contains("no run is given"));
  CHECK_THROWS_WITH(run_top_command({"a", "b"}), Contains("'a' and 'b' are given"));
  CHECK_THROWS_WITH(run_top_command({"a", "--twice"}), Contains("--twice is no flag of mpzero top"));
  for (const char* interval : {"--interval=", "--interval=x", "--interval=0", "--interval=nan", "--interval=1e9"}) {
    CHECK_THROWS_WITH(run_top_command({"a", interval}), Contains("give seconds from 0.1 to 3600"));
  }
  CHECK_THROWS_WITH(run_top_command({"/no/such/run"}), Contains("/no/such/run has neither"));
  for (const char* job : {"99999999", "99999999_5"}) {
    CHECK_THROWS_WITH(run_top_command({job}), Contains("Slurm does not show a job of this number"));
  }
  CHECK_THROWS_WITH(run_top_command({"99_5_5"}), Contains("99_5_5 has neither"));
}
