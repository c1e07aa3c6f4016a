#include <poll.h>

#include "app/exporter/ec2_metrics.hpp"
#include "tests/app/http/stand_in_server.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;

TEST_CASE("each kind of notice has a count") {
  const StandInServer server([](const std::string& request) {
    const auto asks = [&](const char* path) { return request.find(path) != std::string::npos; };
    if (asks("api/token") || asks("instance-id")) return StandInServer::page(200, "x");
    if (asks("instance-action")) {
      return StandInServer::page(200, R"({"action": "terminate", "time": "2100-01-01T00:00:00Z"})");
    }
    return StandInServer::page(404, "");
  });
  StopRequest stop;
  const Ec2Watch watch({.endpoint = {"127.0.0.1", server.port()}, .host = "n"}, stop, [](const std::string&) {});
  pollfd wanted{.fd = stop.descriptor(), .events = POLLIN, .revents = 0};
  REQUIRE(poll(&wanted, 1, 60'000) == 1);
  Families families(MetricLabels{{"node", "n"}});
  collect_ec2(watch, families);
  CHECK_THAT(families.text(), Contains("mpzero_ec2_notices_total{node=\"n\",kind=\"interruption\"} 1\n") &&
                                  Contains("kind=\"rebalance\"} 0\n") && Contains("kind=\"event\"} 0\n"));
}
