#include "app/exporter/exporter.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"

using namespace mpzero;

TEST_CASE("a port that cannot be opened is a user error that names it") {
  const Exporter first({.address = "127.0.0.1", .port = 0, .labels = {}}, {});
  const auto open = [](const std::string& address, uint16_t port) {
    return Exporter({.address = address, .port = port, .labels = {}}, {});
  };
  CHECK_THROWS_AS(open("127.0.0.1", first.port()), UserError);
  CHECK_THROWS_WITH(open("127.0.0.1", first.port()), Catch::Contains("--metrics_port " + std::to_string(first.port()) +
                                                                     " of 127.0.0.1 cannot be opened") &&
                                                         Catch::Contains("Address already in use"));
  CHECK_THROWS_WITH(open("nowhere", 9400), Catch::Contains("--metrics_address"));
}
