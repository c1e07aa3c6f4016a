#include "app/liveness/link/rank_message.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

template <typename Message>
Message sent(const Message& one) {
  const std::string line = message::to_line(one);
  CHECK(line.find('\n') == std::string::npos);
  const std::optional<message::Any> heard = message::parse(line);
  REQUIRE(heard);
  REQUIRE(std::holds_alternative<Message>(*heard));
  return std::get<Message>(*heard);
}

}  // namespace

TEST_CASE("Every message survives serialization") {
  parallel::ChannelRecord gradients;
  gradients.name = "gradients";
  const auto status = sent(message::Status{{.step = 7,
                                            .phase = RunPhase::kValidation,
                                            .idle = 1.5,
                                            .allowed = 60,
                                            .channels = {gradients},
                                            .complaint = "slow"}});
  CHECK(status.status.complaint == "slow");
  CHECK((status.status.step == 7 && status.status.phase == RunPhase::kValidation && status.status.idle == 1.5));
  REQUIRE(status.status.channels.size() == 1);
  CHECK(status.status.channels.front().name == "gradients");
  const auto failed = sent(message::Failed{"two\nlines", {1, 4}});
  CHECK((failed.error == "two\nlines" && failed.culprits == std::vector<int>{1, 4}));
  CHECK(sent(message::Stop{.exit_code = 75, .leaves_host = "it ends"}).exit_code == 75);
  sent(message::Pulse{});
  CHECK(sent(message::Ask{.probe = {}, .by = {}, .number = 17}).number == 17);
  CHECK(sent(message::Status{.status = {}, .answers = 17}).answers == 17);
  CHECK(sent(message::Status{.status = {}, .answers = message::Status::kFirst}).answers == message::Status::kFirst);
  CHECK(sent(message::Status{}).answers == 0);
  const auto end = sent(message::End{.exit_code = 1, .kill = {2, 5}});
  CHECK((end.exit_code == 1 && end.kill == std::vector<int>{2, 5}));
  CHECK(sent(message::Bye{.with_error = true}).with_error);
  CHECK_FALSE(sent(message::Bye{}).with_error);
}

TEST_CASE("An error's text need not be UTF-8") {
  CHECK_THAT(sent(message::Failed{"caf\xe9 is gone", {}}).error, Catch::Contains(" is gone"));
}

TEST_CASE("A line that no rank sends is not parsed as a message") {
  for (const char* line : {"", "GET / HTTP/1.1", "{}", "[1]", "7", R"({"t":7})", R"({"t":"greeting"})",
                           R"({"t":"hello","rank":1})", R"({"t":"failed","error":1,"culprits":[]})",
                           R"({"t":"status","step":1})", R"({"t":"end","code":1,"kill":3})"}) {
    CAPTURE(line);
    CHECK_FALSE(message::parse(line));
  }
}

}  // namespace mpzero
