#include <poll.h>

#include <csignal>
#include <map>

#include "app/health/stop_request.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

bool readable(int descriptor) {
  pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&wanted, 1, 0) == 1;
}

}  // namespace

TEST_CASE("the first signal and the time since then are kept") {
  const StopRequest stop;
  CHECK_FALSE(stop.requested());
  CHECK(stop.seconds_since() == 0);
  CHECK_FALSE(readable(stop.descriptor()));
  raise(SIGUSR1);
  raise(SIGTERM);
  CHECK(stop.requested());
  CHECK(stop.reason() == "SIGUSR1");
  CHECK_FALSE(stop.is_own());
  CHECK(stop.seconds_left() == 0);
  CHECK(stop.seconds_since() > 0);
  CHECK_FALSE(stop.is_immediate());
  CHECK(readable(stop.descriptor()));
  stop.drain();
  CHECK_FALSE(readable(stop.descriptor()));
}

TEST_CASE("the program itself can request a stop") {
  StopRequest stop;
  CHECK(stop.reason().empty());
  stop.request("the end of the host", 1000);
  CHECK(stop.requested());
  CHECK(stop.is_own());
  CHECK(readable(stop.descriptor()));
  CHECK(stop.reason() == "the end of the host");
  CHECK(stop.seconds_left() <= 1000);
  CHECK(stop.seconds_left() > 900);
  stop.request("another", 5);
  raise(SIGTERM);
  CHECK(stop.reason() == "the end of the host");
  CHECK(stop.is_own());
}

TEST_CASE("a request after a signal changes nothing") {
  StopRequest stop;
  raise(SIGUSR2);
  stop.drain();
  stop.request("the end of the host", 1000);
  CHECK(stop.reason() == "SIGUSR2");
  CHECK_FALSE(stop.is_own());
  CHECK(stop.seconds_left() == 0);
  CHECK_FALSE(readable(stop.descriptor()));
}

TEST_CASE("two SIGINTs, but not two other signals, request an immediate exit") {
  const StopRequest stop;
  raise(SIGTERM);
  raise(SIGTERM);
  raise(SIGINT);
  CHECK_FALSE(stop.is_immediate());
  raise(SIGINT);
  CHECK(stop.is_immediate());
  CHECK(stop.reason() == "SIGTERM");
}

TEST_CASE("a new object does not inherit an earlier request, and ignored signals stay ignored") {
  struct sigaction terminate {};
  sigaction(SIGTERM, nullptr, &terminate);
  {
    const StopRequest stop;
    raise(SIGTERM);
    CHECK(stop.requested());
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  struct sigaction before {};
  sigaction(SIGHUP, &ignore, &before);
  {
    const StopRequest stop;
    CHECK_FALSE(stop.requested());
    raise(SIGHUP);
    CHECK_FALSE(stop.requested());
    raise(SIGUSR2);
    CHECK(stop.reason() == "SIGUSR2");
  }
  struct sigaction after {};
  sigaction(SIGHUP, &before, &after);
  CHECK(after.sa_handler == SIG_IGN);
  sigaction(SIGTERM, nullptr, &after);
  CHECK(after.sa_handler == terminate.sa_handler);
}

TEST_CASE("after the end of a run, all signals except SIGINT are ignored, even without the object") {
  std::map<int, struct sigaction> before;
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGINT}) sigaction(signal, nullptr, &before[signal]);
  {
    StopRequest stop;
    raise(SIGUSR1);
    stop.ignore_signals();
    raise(SIGTERM);
    CHECK(stop.reason() == "SIGUSR1");
    raise(SIGINT);
    raise(SIGINT);
    CHECK(stop.is_immediate());
  }
  for (const auto& [signal, action] : before) {
    struct sigaction after {};
    sigaction(signal, &action, &after);
    CHECK(after.sa_handler == (signal == SIGINT ? action.sa_handler : SIG_IGN));
  }
}

TEST_CASE("signals have names") {
  CHECK(signal_name(SIGTERM) == "SIGTERM");
  CHECK(signal_name(SIGUSR1) == "SIGUSR1");
}

}  // namespace mpzero
