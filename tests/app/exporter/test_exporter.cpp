#include <atomic>

#include "app/exporter/exporter.hpp"
#include "base/error.hpp"
#include "tests/app/exporter/http_client.hpp"
#include "tests/catch.hpp"

using namespace mpzero;

TEST_CASE("a port that cannot be opened is a user error with the port") {
  const Exporter first({.address = "127.0.0.1", .port = 0, .labels = {}}, {});
  const auto open = [](const std::string& address, uint16_t port) {
    return Exporter({.address = address, .port = port, .labels = {}}, {});
  };
  CHECK_THROWS_AS(open("127.0.0.1", first.port()), UserError);
  CHECK_THROWS_WITH(open("127.0.0.1", first.port()),
                    Catch::Contains("--metrics_port " + std::to_string(first.port()) + ": ") &&
                        Catch::Contains("Address already in use"));
  CHECK_THROWS_WITH(open("nowhere", 9400), Catch::Contains("--metrics_address"));
}

TEST_CASE("metrics are collected at most once per second") {
  CHECK(ExporterOptions{}.fresh == std::chrono::seconds(1));
  const auto collected = [](std::chrono::milliseconds fresh) {
    std::atomic<int> count = 0;
    const Exporter exporter({.address = "127.0.0.1", .port = 0, .labels = {}, .fresh = fresh},
                            {[&](Families&) { ++count; }});
    for (int i = 0; i < 3; ++i) {
      CHECK_THAT(ask(exporter.port(), "GET /metrics"), Catch::Contains("mpzero_up 1\n"));
    }
    return count.load();
  };
  CHECK(collected(std::chrono::hours(1)) == 1);
  CHECK(collected(std::chrono::milliseconds(0)) == 3);
}
