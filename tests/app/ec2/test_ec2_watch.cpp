#include <poll.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <vector>

#include "app/ec2/ec2_watch.hpp"
#include "tests/app/ec2/stand_in_server.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;
using Kind = Ec2Notice::Kind;

namespace {

// Only ends a test that hangs.
constexpr std::chrono::seconds kLimit{60};

// Warnings of a watch, and gates that open as it proceeds.
class Warnings {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(text);
    changed_.notify_all();
  }
  std::vector<std::string> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kLimit, [&] { return texts_.size() >= count; }));
    return texts_;
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return texts_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;
};

constexpr const char *kAction = "spot/instance-action", *kRecommendation = "events/recommendations/rebalance",
                     *kEvents = "events/maintenance/scheduled";

// Answers as EC2's, with notices on one page.
class Ec2 {
 public:
  // `status_of`: by the number of a request for the page, from 1.
  explicit Ec2(
      std::string path = kAction, std::string text = "", std::function<int(int)> status_of = [](int) { return 200; })
      : path_(std::move(path)),
        text_(std::move(text)),
        status_of_(std::move(status_of)),
        service_([this](const std::string& request) { return answer(request); }) {}

  Ec2WatchOptions options(double began = 0) const {
    return {.endpoint = MetadataEndpoint{"127.0.0.1", service_.port()},
            .began = began,
            .host = "node-7",
            .interval = std::chrono::milliseconds(1),
            .patience = std::chrono::seconds(20)};
  }
  // Until the page was asked for so often.
  void wait_for(int asked) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kLimit, [&] { return static_cast<int>(asked_in_.size()) >= asked; }));
  }
  // The round, from 1, of a request for the page, from 1. Each round begins with a request for kAction.
  int round_of(size_t request) {
    const std::lock_guard lock(mutex_);
    return asked_in_[request - 1];
  }

 private:
  std::string answer(const std::string& request) {
    const auto asks = [&](const std::string& path) { return request.find("/" + path + " ") != std::string::npos; };
    if (asks("api/token")) return StandInServer::page(200, "token");
    if (asks("instance-id")) return StandInServer::page(200, "i-42");
    const std::lock_guard lock(mutex_);
    if (asks(kAction)) ++rounds_;
    if (!asks(path_)) return StandInServer::page(404, "");
    asked_in_.push_back(rounds_);
    const int status = text_.empty() ? 404 : 200, wanted = status_of_(static_cast<int>(asked_in_.size()));
    changed_.notify_all();
    return wanted == 200 ? StandInServer::page(status, text_) : StandInServer::page(wanted, "");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::string path_, text_;
  const std::function<int(int)> status_of_;
  std::vector<int> asked_in_;  // the rounds
  int rounds_ = 0;
  StandInServer service_;
};

void wait_for(const StopRequest& stop) {
  pollfd wanted{.fd = stop.descriptor(), .events = POLLIN, .revents = 0};
  REQUIRE(poll(&wanted, 1, std::chrono::milliseconds(kLimit).count()) == 1);
}

constexpr const char* kInterruption = R"({"action": "terminate", "time": "2100-01-01T00:00:00Z"})";
constexpr const char* kRebalance = R"({"noticeTime": "2020-10-27T08:22:00Z"})";
constexpr double kNoticeTime = 1603786920;

}  // namespace

TEST_CASE("an interruption requests a stop with the remaining time") {
  StopRequest stop;
  Warnings warnings;
  Ec2 ec2(kAction, kInterruption);
  const Ec2Watch watch(ec2.options(/*began=*/0), stop, [&](const std::string& text) { warnings.add(text); });
  wait_for(stop);
  CHECK(stop.is_own());
  CHECK(stop.reason() == "EC2 spot interruption of instance i-42 at 2100-01-01T00:00:00Z (terminate) on host node-7");
  CHECK(stop.seconds_left() + stop.seconds_since() == Approx(120).margin(30));
  CHECK(watch.counts() == std::map<Kind, int64_t>{{Kind::kInterruption, 1}});
  CHECK(warnings.count() == 0);
}

TEST_CASE("a clock that is ahead does not shorten the time for the save") {
  StopRequest stop;
  Warnings warnings;
  Ec2 ec2(kAction, R"({"action": "terminate", "time": "2020-10-27T08:22:00Z"})");
  const Ec2Watch watch(ec2.options(/*began=*/0), stop, [&](const std::string& text) { warnings.add(text); });
  wait_for(stop);
  CHECK(stop.seconds_left() + stop.seconds_since() == Approx(120).margin(30));
}

TEST_CASE("a recommendation after the start requests a stop; an earlier one causes one warning") {
  StopRequest stop;
  Warnings warnings;
  const auto warn = [&](const std::string& text) { warnings.add(text); };
  Ec2 ec2(kRecommendation, kRebalance);
  {
    const Ec2Watch late(ec2.options(/*began=*/kNoticeTime + 1), stop, warn);
    ec2.wait_for(4);
    CHECK_FALSE(stop.requested());
    CHECK_THAT(warnings.wait_for(1).front(), Contains("i-42") && Contains("node-7") && Contains("drain the node"));
    CHECK(warnings.count() == 1);
    CHECK(late.counts() == std::map<Kind, int64_t>{{Kind::kRebalance, 1}});
  }
  const Ec2Watch watch(ec2.options(/*began=*/kNoticeTime - 1), stop, warn);
  wait_for(stop);
  CHECK_THAT(stop.reason(), Contains("rebalance recommendation"));
  CHECK(stop.seconds_left() == 0);
}

TEST_CASE("a distant event causes a warning, and an imminent event requests a stop") {
  StopRequest stop;
  Warnings warnings;
  const auto warn = [&](const std::string& text) { warnings.add(text); };
  const auto event = [](const std::string& time) {
    return R"([{"Code": "system-reboot", "State": "active", "NotBefore": ")" + time + R"("}])";
  };
  {
    Ec2 ec2(kEvents, event("01 Jan 2100 00:00:00 GMT"));
    const Ec2Watch watch(ec2.options(/*began=*/0), stop, warn);
    CHECK_THAT(warnings.wait_for(1).front(), Contains("system-reboot") && Contains("15 minutes before"));
    CHECK_FALSE(stop.requested());
  }
  Ec2 ec2(kEvents, event("21 Jan 2019 09:00:43 GMT"));
  const Ec2Watch watch(ec2.options(/*began=*/0), stop, warn);
  wait_for(stop);
  CHECK_THAT(stop.reason(), Contains("EC2 scheduled event system-reboot of instance i-42"));
}

TEST_CASE("without notices, nothing happens") {
  StopRequest stop;
  Warnings warnings;
  Ec2 ec2;
  const Ec2Watch watch(ec2.options(/*began=*/0), stop, [&](const std::string& text) { warnings.add(text); });
  ec2.wait_for(5);
  CHECK(watch.answers());
  CHECK_FALSE(stop.requested());
  CHECK(warnings.count() == 0);
  CHECK(watch.counts().empty());
}

TEST_CASE("a broken service causes one warning and no stop request") {
  StopRequest stop;
  Warnings warnings;
  // A web server that answers everything; a proxy that refuses; lies at one of the paths.
  for (const std::string& page :
       {StandInServer::page(200, "<html>Hello</html>"), StandInServer::page(403, ""), std::string("garbage\r\n")}) {
    const size_t before = warnings.count();
    const StandInServer service([&](const std::string&) { return page; });
    const Ec2Watch watch({.endpoint = MetadataEndpoint{"127.0.0.1", service.port()},
                          .host = "node-7",
                          .interval = std::chrono::milliseconds(1)},
                         stop, [&](const std::string& text) { warnings.add(text); });
    CHECK_THAT(warnings.wait_for(before + 1).back(), Contains("failed on host node-7") && Contains("hop limit"));
    const int asked = service.asked();
    while (service.asked() < asked + 4) std::this_thread::yield();
    CHECK(warnings.count() == before + 1);
    CHECK_FALSE(watch.answers());
  }
  CHECK_FALSE(stop.requested());
}

TEST_CASE("the destructor of a watch returns immediately if the service hangs") {
  StopRequest stop;
  std::promise<void> asked;
  const StandInServer service([&](const std::string&) {
    asked.set_value();
    return "";
  });
  Ec2WatchOptions options{.endpoint = MetadataEndpoint{"127.0.0.1", service.port()}, .host = "node-7"};
  options.patience = std::chrono::hours(1);  // the test would hang
  const Ec2Watch watch(options, stop, [](const std::string&) {});
  asked.get_future().wait();
}

namespace {

constexpr const char* kDueEvent =
    R"([{"State": "active", "Code": "x"}, {"Code": "system-reboot", "State": "active", "NotBefore": "21 Jan 2019 09:00:43 GMT"}])";

}  // namespace

TEST_CASE("warns if scheduled events cannot be requested, even if other notices can") {
  StopRequest stop;
  Warnings warnings;
  Ec2 ec2(kEvents, "", [](int) { return 500; });
  const Ec2Watch watch(ec2.options(), stop, [&](const std::string& text) { warnings.add(text); });
  CHECK_THAT(warnings.wait_for(1).front(), Contains("500 in response to GET /latest/meta-data/events/maintenance") &&
                                               Contains("Not monitored on this host: scheduled events") &&
                                               !Contains("hop limit"));
  ec2.wait_for(8);
  CHECK(warnings.count() == 1);
  CHECK_FALSE(watch.answers());
}

TEST_CASE("after a failure, events are requested in the next poll, and an unreadable event hides no other") {
  StopRequest stop;
  Warnings warnings;
  Ec2 ec2(kEvents, kDueEvent, [](int asked) { return asked == 1 ? 500 : 200; });
  const Ec2Watch watch(ec2.options(), stop, [&](const std::string& text) { warnings.add(text); });
  ec2.wait_for(2);
  CHECK(ec2.round_of(2) == 2);
  wait_for(stop);
  CHECK_THAT(stop.reason(), Contains("system-reboot"));
  CHECK_THAT(warnings.wait_for(1).front(), Contains("i-42") && Contains("has no string field 'NotBefore'"));
  ec2.wait_for(4);
  CHECK(warnings.count() == 1);
}

TEST_CASE("nonconsecutive failures cause no warning") {
  StopRequest stop;
  Warnings warnings;
  Ec2 ec2(kAction, "", [](int asked) { return asked % 3 == 0 ? 404 : 500; });
  const Ec2Watch watch(ec2.options(), stop, [&](const std::string& text) { warnings.add(text); });
  ec2.wait_for(20);
  CHECK(warnings.count() == 0);
}

TEST_CASE("the number of distinct notices is limited to a hundred") {
  StopRequest stop;
  Warnings warnings;
  std::string events;
  for (int i = 0; i < 130; ++i) {
    events += std::string(i == 0 ? "[" : ", ") +
              R"({"State": "active", "NotBefore": "01 Jan 2100 00:00:00 GMT", "Code": "c)" + std::to_string(i) + "\"}";
  }
  Ec2 ec2(kEvents, events + "]");
  const Ec2Watch watch(ec2.options(), stop, [&](const std::string& text) { warnings.add(text); });
  ec2.wait_for(3);
  CHECK(watch.counts() == std::map<Kind, int64_t>{{Kind::kEvent, 100}});
  CHECK(warnings.count() == 100);
}
