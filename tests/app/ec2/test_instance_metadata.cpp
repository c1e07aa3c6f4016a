#include <future>
#include <map>

#include "app/ec2/instance_metadata.hpp"
#include "base/error.hpp"
#include "tests/app/ec2/stand_in_server.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;

namespace {

constexpr std::chrono::milliseconds kShort{300};
// Only ends a test that hangs.
constexpr std::chrono::milliseconds kLong{60'000};

parallel::Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string place(const std::string& endpoint) {
  const auto found = metadata_endpoint(environment({{"AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint}}));
  return found->host + " " + found->port;
}

bool is_put(const std::string& request) { return request.starts_with("PUT /latest/api/token HTTP/1.1\r\n"); }

}  // namespace

TEST_CASE("the endpoint is the same as that of the AWS SDKs") {
  CHECK(metadata_endpoint(environment({}))->host == "169.254.169.254");
  CHECK(metadata_endpoint(environment({{"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6"}}))->host == "fd00:ec2::254");
  CHECK(place("http://localhost:1338") == "127.0.0.1 1338");
  CHECK(place("http://169.254.169.254/") == "169.254.169.254 80");
  CHECK(place("http://[fd00:ec2::254]") == "fd00:ec2::254 80");
  CHECK(place("http://[::1]:81/") == "::1 81");
  CHECK_FALSE(metadata_endpoint(environment({{"AWS_EC2_METADATA_DISABLED", "true"}})));
}

TEST_CASE("invalid values are refused") {
  for (const char* url : {"169.254.169.254", "https://127.0.0.1", "http://",
                          "http://127.0.0.1:", "http://127.0.0.1:abc", "http://127.0.0.1:123456", "http://[::1",
                          "http://[::1]x", "http://metadata.test", "http://127.0.0.1/y", "http://u@127.0.0.1"}) {
    INFO(url);
    CHECK_THROWS_WITH(place(url), Contains("AWS_EC2_METADATA_SERVICE_ENDPOINT is '" + std::string(url) + "'"));
  }
  CHECK_THROWS_WITH(metadata_endpoint(environment({{"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv5"}})),
                    Contains("IPv5") && Contains("set it to IPv4 or IPv6"));
}

TEST_CASE("a token is requested once and sent with each request") {
  int puts = 0;
  const StandInServer service([&](const std::string& request) {
    if (is_put(request)) {
      ++puts;
      CHECK_THAT(request, Contains("X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"));
      return StandInServer::page(200, "a-token==");
    }
    CHECK_THAT(request, Contains("X-aws-ec2-metadata-token: a-token==\r\n"));
    if (request.starts_with("GET /there ")) return StandInServer::page(200, "text");
    return StandInServer::page(404, "no such page");
  });
  InstanceMetadata metadata(MetadataEndpoint{"127.0.0.1", service.port()}, kLong);
  CHECK(metadata.get("/there") == "text");
  CHECK(metadata.get("/not_there") == std::nullopt);
  CHECK(puts == 1);
}

TEST_CASE("an expired token is renewed, once per request") {
  int puts = 0;
  int newest = 1;
  const StandInServer service([&](const std::string& request) {
    if (is_put(request)) return StandInServer::page(200, "t" + std::to_string(++puts));
    const bool good = request.find("token: t" + std::to_string(newest) + "\r\n") != std::string::npos;
    return good ? StandInServer::page(200, "text") : StandInServer::page(401, "");
  });
  InstanceMetadata metadata(MetadataEndpoint{"127.0.0.1", service.port()}, kLong);
  CHECK(metadata.get("/a") == "text");
  newest = 2;
  CHECK(metadata.get("/a") == "text");
  CHECK(puts == 2);
  newest = 9;
  CHECK_THROWS_WITH(metadata.get("/a"), Contains("401 in response to GET /a"));
  CHECK(puts == 3);
}

TEST_CASE("only a rejected token is renewed") {
  int puts = 0;
  const StandInServer service([&](const std::string& request) {
    if (!is_put(request)) return StandInServer::page(500, "");
    ++puts;
    return StandInServer::page(200, "t");
  });
  InstanceMetadata metadata(MetadataEndpoint{"127.0.0.1", service.port()}, kLong);
  CHECK_THROWS_WITH(metadata.get("/a"), Contains("500 in response to GET /a"));
  CHECK(puts == 1);
}

TEST_CASE("invalid responses are failures") {
  const auto ask = [](const std::string& token_answer, const std::string& answer) {
    const StandInServer service([&](const std::string& request) { return is_put(request) ? token_answer : answer; });
    InstanceMetadata metadata(MetadataEndpoint{"127.0.0.1", service.port()}, kShort);
    return metadata.get("/a");
  };
  const std::string token = StandInServer::page(200, "t");
  CHECK_THROWS_WITH(ask(StandInServer::page(403, ""), ""), Contains("403 in response to PUT"));
  CHECK_THROWS_WITH(ask(StandInServer::page(200, ""), ""), Contains("is not a token"));
  CHECK_THROWS_WITH(ask(StandInServer::page(200, "t\r\nX: y"), ""), Contains("is not a token"));
  CHECK_THROWS_WITH(ask(StandInServer::page(200, std::string(5000, 't')), ""), Contains("is not a token"));
  CHECK_THROWS_WITH(ask(token, StandInServer::page(500, "")), Contains("500 in response to GET /a"));
  CHECK_THROWS_AS(ask(token, "SSH-2.0-OpenSSH\r\n"), Failure);
  // Refused before it is read, and where no length is given.
  CHECK_THROWS_WITH(ask(token, "HTTP/1.1 200 x\r\nContent-Length: 65537\r\n\r\n"), Contains("body limit exceeded"));
  CHECK_THROWS_AS(ask(token, "HTTP/1.1 200 x\r\n\r\n" + std::string(70'000, 'x')), Failure);
  CHECK(ask(token, StandInServer::page(200, std::string(65'536, 'x')))->size() == 65'536);
  CHECK_THROWS_AS(ask(token, "HTTP/1.1 200 x\r\nA: " + std::string(9000, 'x') + "\r\n\r\n"), Failure);
  // It keeps the connection and says nothing.
  CHECK_THROWS_WITH(ask("", ""), Contains("timed out"));
}

TEST_CASE("an error without a listening service has a reason") {
  MetadataEndpoint nowhere;
  {
    const StandInServer service([](const std::string&) { return ""; });
    nowhere = MetadataEndpoint{"127.0.0.1", service.port()};
  }
  InstanceMetadata metadata(nowhere, kLong);
  CHECK_THROWS_WITH(metadata.get("/a"), Contains("refused"));
}

TEST_CASE("a hanging request can be canceled") {
  std::promise<void> asked;
  const StandInServer service([&](const std::string&) {
    asked.set_value();
    return "";
  });
  InstanceMetadata metadata(MetadataEndpoint{"127.0.0.1", service.port()}, kLong);
  auto answer = std::async(std::launch::async, [&] { return metadata.get("/a"); });
  asked.get_future().wait();
  metadata.cancel();
  CHECK_THROWS_AS(answer.get(), Failure);
  CHECK_THROWS_WITH(metadata.get("/a"), Contains("canceled"));
}
