#include "app/ec2/ec2_notice.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;
using Kind = Ec2Notice::Kind;

namespace {

std::vector<Ec2Notice> active_events(const std::string& text) {
  const Ec2Events events = read_events(text);
  CHECK(events.unreadable.empty());
  return events.active;
}

}  // namespace

// The answers are those of EC2's user guide; Unix times are `date -u -d TIME +%s`.

TEST_CASE("an interruption contains its action and time") {
  const Ec2Notice notice = read_interruption(R"({"action": "terminate", "time": "2017-09-18T08:22:00Z"})");
  CHECK(notice.kind == Kind::kInterruption);
  CHECK(notice.what == "terminate");
  CHECK(notice.at == 1505722920);
  CHECK(describe(notice, "i-0123") == "EC2 spot interruption of instance i-0123 at 2017-09-18T08:22:00Z (terminate)");
  CHECK(describe(notice, "") == "EC2 spot interruption of this instance at 2017-09-18T08:22:00Z (terminate)");
}

TEST_CASE("a rebalance recommendation contains the time of the notice") {
  const Ec2Notice notice = read_rebalance(R"({"noticeTime": "2020-10-27T08:22:00Z"})");
  CHECK(notice.at == 1603786920);
  CHECK_THAT(describe(notice, "i-1"), Contains("rebalance recommendation for instance i-1 from 2020-10-27T08:22:00Z"));
}

TEST_CASE("completed and canceled events are omitted") {
  const auto notices = active_events(R"([
    {"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "system-reboot", "Description": "scheduled reboot",
     "EventId": "instance-event-0d59937288b749b32", "NotAfter": "21 Jan 2019 09:17:23 GMT", "State": "active"},
    {"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "instance-stop", "State": "completed"},
    {"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "instance-stop", "State": "canceled"}])");
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].at == 1548061243);
  CHECK_THAT(describe(notices[0], "i-1"), Contains("system-reboot of instance i-1, not before 21 Jan 2019 09:00:43"));
  CHECK(active_events("[]").empty());
}

TEST_CASE("an unreadable event does not hide other events") {
  const Ec2Events events = read_events(R"([
    {"Code": "system-maintenance", "State": "active"},
    {"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "system-reboot", "State": "active"},
    {"NotBefore": "soon", "Code": "instance-stop", "State": "active"}, 7])");
  REQUIRE(events.active.size() == 1);
  CHECK(events.active[0].what == "system-reboot");
  REQUIRE(events.unreadable.size() == 3);
  CHECK_THAT(events.unreadable[0], Contains("has no string field 'NotBefore'"));
  CHECK_THAT(events.unreadable[1], Contains("'soon' is not a time"));
  CHECK_THAT(events.unreadable[2], Contains("has no string field 'State'"));
}

TEST_CASE("an invalid response is an error") {
  for (const char* text :
       {"", "<html>", "[]", "{}", R"({"action": "terminate"})", R"({"action": 1, "time": "2017-09-18T08:22:00Z"})",
        R"({"action": "terminate", "time": "soon"})",
        R"({"action": "terminate", "time": "2017-09-18T08:22:00Z later"})",
        "{\"action\": \"a\\nb\", \"time\": \"2017-09-18T08:22:00Z\"}"}) {
    INFO(text);
    CHECK_THROWS(read_interruption(text));
  }
  CHECK_THROWS(read_interruption(R"({"action": ")" + std::string(65, 'a') + R"(", "time": "2017-09-18T08:22:00Z"})"));
  CHECK_THROWS(read_rebalance("{}"));
  CHECK_THROWS(read_events("{}"));
  CHECK_THROWS(read_events(std::string(40, '[') + std::string(40, ']')));
}

TEST_CASE("an interruption always stops a run") {
  const Ec2Notice notice{.kind = Kind::kInterruption, .what = "stop", .at = 1000, .moment = ""};
  CHECK(respond(notice, /*began=*/500, /*now=*/900, 100) == Ec2Response::kStop);
  CHECK(respond(notice, /*began=*/950, /*now=*/960, 100) == Ec2Response::kStop);
}

TEST_CASE("a recommendation from before the start does not stop the run again") {
  const Ec2Notice notice{.kind = Kind::kRebalance, .what = "rebalance", .at = 1000, .moment = ""};
  CHECK(respond(notice, /*began=*/999, /*now=*/1001, 100) == Ec2Response::kStop);
  CHECK(respond(notice, /*began=*/1001, /*now=*/1002, 100) == Ec2Response::kWarn);
}

TEST_CASE("a run stops once, some time before an event") {
  const Ec2Notice notice{.kind = Kind::kEvent, .what = "system-reboot", .at = 1000, .moment = ""};
  CHECK(respond(notice, /*began=*/0, /*now=*/899, /*lead=*/100) == Ec2Response::kWarn);
  CHECK(respond(notice, /*began=*/0, /*now=*/900, /*lead=*/100) == Ec2Response::kStop);
  CHECK(respond(notice, /*began=*/0, /*now=*/2000, /*lead=*/100) == Ec2Response::kStop);
  CHECK(respond(notice, /*began=*/900, /*now=*/901, /*lead=*/100) == Ec2Response::kWarn);
}
