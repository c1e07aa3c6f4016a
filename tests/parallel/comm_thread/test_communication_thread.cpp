#include <pthread.h>

#include <array>
#include <atomic>
#include <csignal>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

#include "parallel/comm_thread/communication_thread.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

using Runs = CommunicationThread::Runs;
using Job = CommunicationThread::Job;
using Lane = CommunicationThread::Lane;
using Progress = HostTask::Progress;

// The lane's end while an exception destroys what uses it.
void unwind(Lane& lane) {
  struct Finish {
    Lane& lane;
    ~Finish() { lane.finish(); }
  };
  try {
    const Finish finish{lane};
    throw std::runtime_error("the run has failed");
  } catch (const std::runtime_error&) {
  }
}

// Closed until somebody opens it.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }
  bool is_open() {
    const std::lock_guard lock(mutex_);
    return open_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// What happened, in order.
class Story {
 public:
  void add(const std::string& event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  std::vector<std::string> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
};

// Tells when it takes its first step, ends at the first step after a gate has opened, and can throw then.
class GatedTask final : public HostTask {
 public:
  struct Gates {
    Gate begun, may_end, destroyed;
  };
  GatedTask(Gates& gates, Story& story, std::string name, bool fails)
      : gates_(gates), story_(story), name_(std::move(name)), fails_(fails) {}
  ~GatedTask() override { gates_.destroyed.open(); }

  Progress advance() override {
    if (!gates_.begun.is_open()) story_.add("begin " + name_);
    gates_.begun.open();
    if (!gates_.may_end.is_open()) return Progress::kNone;
    story_.add("end " + name_);
    if (fails_) throw std::runtime_error(name_ + " failed");
    return Progress::kDone;
  }

 private:
  Gates& gates_;
  Story& story_;
  std::string name_;
  bool fails_;
};

using Gates = GatedTask::Gates;

struct Fixture {
  std::unique_ptr<HostTask> task(Gates& gates, const std::string& name, bool fails = false) {
    return std::make_unique<GatedTask>(gates, story, name, fails);
  }
  // Until the thread has gone around all lanes.
  static void let_turns_pass(CommunicationThread& thread, int turns = 3) {
    struct Nothing final : HostTask {
      Progress advance() override { return Progress::kDone; }
    };
    Lane lane(thread);
    for (int i = 0; i < turns; ++i) lane.submit(std::make_unique<Nothing>())->wait();
  }
  std::vector<std::string> events() const { return story.events(); }

  Story story;
};

using Events = std::vector<std::string>;

std::string message_of(Job& job) {
  try {
    job.wait();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the jobs of a lane run one at a time, concurrently with other lanes") {
  Fixture f;
  Gates a, b, c;
  CommunicationThread thread(Runs::kBeside);
  Lane one(thread), other(thread);
  const auto job_a = one.submit(f.task(a, "a"));
  const auto job_b = one.submit(f.task(b, "b"));
  const auto job_c = other.submit(f.task(c, "c"));
  a.begun.pass();
  c.begun.pass();
  Fixture::let_turns_pass(thread);
  CHECK(job_a->state() == CollectiveState::kStarted);
  CHECK(job_b->state() == CollectiveState::kQueued);
  CHECK(job_c->state() == CollectiveState::kStarted);
  CHECK_FALSE(b.begun.is_open());
  // The later lane ends first; the second job of the first one is let go before the first.
  c.may_end.open();
  job_c->wait();
  b.may_end.open();
  Fixture::let_turns_pass(thread);
  CHECK_FALSE(b.begun.is_open());
  a.may_end.open();
  job_b->wait();
  job_a->wait();
  CHECK(job_a->state() == CollectiveState::kCompleted);
  const Events events = f.events();
  CHECK(Events(events.end() - 4, events.end()) == Events{"end c", "end a", "begin b", "end b"});
}

TEST_CASE("a job's resources are freed once it has ended") {
  Fixture f;
  Gates gates;
  CommunicationThread thread(Runs::kBeside);
  Lane lane(thread);
  const auto job = lane.submit(f.task(gates, "a"));
  gates.may_end.open();
  gates.destroyed.pass();
  job->wait();
}

TEST_CASE("the thread handles no signals and does not change its creator's signal mask") {
  const auto blocked = [] {
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, nullptr, &set);
    std::set<int> signals;
    for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) {
      if (sigismember(&set, signal) == 1) signals.insert(signal);
    }
    return signals;
  };
  struct Looking final : HostTask {
    Looking(std::function<std::set<int>()> blocked, std::set<int>& seen) : blocked(std::move(blocked)), seen(seen) {}
    Progress advance() override {
      seen = blocked();
      return Progress::kDone;
    }
    std::function<std::set<int>()> blocked;
    std::set<int>& seen;
  };
  const std::set<int> before = blocked();
  CHECK(before.empty());
  CommunicationThread thread(Runs::kBeside);
  CHECK(blocked() == before);
  Lane lane(thread);
  std::set<int> seen;
  lane.submit(std::make_unique<Looking>(blocked, seen))->wait();
  CHECK(seen == std::set<int>{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD});
}

TEST_CASE("a job keeps its predecessors in an order only until it begins or ends, so chains do not grow") {
  Fixture f;
  for (const bool begins : {true, false}) {
    INFO("it begins: " << begins);
    Gates a, b;
    CommunicationThread thread(Runs::kBeside);
    Lane before(thread), after(thread);
    std::shared_ptr<Job> job_a = before.submit(f.task(a, "a")), job_b;
    {
      HostOrder order;
      job_a->wait();
      job_b = after.submit(f.task(b, "b"));
    }
    const std::weak_ptr<Job> kept = std::exchange(job_a, nullptr);
    a.begun.pass();
    if (begins) {
      a.may_end.open();
      b.begun.pass();
      CHECK(kept.expired());
      b.may_end.open();
      job_b->wait();
    } else {
      unwind(after);
      CHECK(job_b->state() == CollectiveState::kCompleted);
      a.may_end.open();
      a.destroyed.pass();
      Fixture::let_turns_pass(thread);
      CHECK(kept.expired());
    }
  }
}

TEST_CASE("within a HostOrder, a job begins after the awaited jobs without blocking the caller") {
  Fixture f;
  Gates a, b, c;
  CommunicationThread thread(Runs::kBeside);
  Lane within(thread), between(thread);
  const auto job_a = within.submit(f.task(a, "a"));
  std::shared_ptr<Job> job_b;
  {
    HostOrder order;
    job_a->wait();
    job_b = between.submit(f.task(b, "b"));
  }
  // Behind b in its lane, but in no order: it waits for b only.
  const auto job_c = between.submit(f.task(c, "c"));
  b.may_end.open();
  c.may_end.open();
  a.begun.pass();
  Fixture::let_turns_pass(thread);
  CHECK(f.events() == Events{"begin a"});
  a.may_end.open();
  job_c->wait();
  CHECK(f.events() == Events{"begin a", "end a", "begin b", "end b", "begin c", "end c"});
}

TEST_CASE("a function in a HostOrder runs between the awaited jobs and later jobs") {
  Fixture f;
  for (const bool ended : {false, true}) {
    Gates a, b;
    CommunicationThread thread(Runs::kBeside);
    Lane within(thread), between(thread);
    if (ended) a.may_end.open();
    b.may_end.open();
    const auto job_a = within.submit(f.task(a, "a"));
    if (ended) job_a->wait();
    std::shared_ptr<Job> job_b;
    {
      HostOrder order;
      order.run([&] { f.story.add("at once"); });
      job_a->wait();
      order.run([&] { f.story.add("function"); });
      job_b = between.submit(f.task(b, "b"));
    }
    a.begun.pass();
    Fixture::let_turns_pass(thread);
    a.may_end.open();
    job_b->wait();
    Events events = f.events();
    events.erase(events.begin(), events.end() - 6);
    // Nothing is before it in the order, so that it may come before or after a.
    CHECK(std::erase(events, "at once") == 1);
    CHECK(events == Events{"begin a", "end a", "function", "begin b", "end b"});
  }
}

TEST_CASE("an error reaches waiters, queued jobs of the lane, dependent jobs and later jobs") {
  Fixture f;
  Gates a, b, c, d;
  Gates e;
  CommunicationThread thread(Runs::kBeside);
  Lane lane(thread), other(thread), third(thread);
  const auto job_a = lane.submit(f.task(a, "a", /*fails=*/true));
  const auto job_b = lane.submit(f.task(b, "b"));
  std::shared_ptr<Job> job_c;
  {
    HostOrder order;
    job_a->wait();
    job_c = other.submit(f.task(c, "c"));
  }
  d.may_end.open();
  const auto job_d = third.submit(f.task(d, "d"));
  CHECK(lane.error().empty());
  a.may_end.open();
  CHECK(message_of(*job_a) == "a failed");
  CHECK(message_of(*job_a) == "a failed");
  CHECK(message_of(*job_b) == "a failed");
  CHECK(message_of(*job_c) == "a failed");
  CHECK(message_of(*job_d).empty());
  CHECK(lane.error() == "a failed");
  CHECK_THROWS_WITH(job_b->state(), "a failed");
  CHECK(message_of(*lane.submit(f.task(e, "e"))) == "a failed");
  for (Gates* const gates : {&b, &c, &e}) CHECK_FALSE(gates->begun.is_open());
}

TEST_CASE("a function's error reaches dependent jobs") {
  Fixture f;
  Gates a, b;
  CommunicationThread thread(Runs::kBeside);
  Lane lane(thread), other(thread);
  const auto job_a = lane.submit(f.task(a, "a"));
  std::shared_ptr<Job> job_b;
  {
    HostOrder order;
    job_a->wait();
    order.run([] { throw std::runtime_error("no function"); });
    job_b = other.submit(f.task(b, "b"));
  }
  a.may_end.open();
  CHECK(message_of(*job_b) == "no function");
}

TEST_CASE("stack unwinding ends waiting jobs, whatever the job does") {
  Fixture f;
  Gates a, b, c, d;
  CommunicationThread thread(Runs::kBeside);
  Lane lane(thread), other(thread);
  const auto job_a = lane.submit(f.task(a, "a"));
  const auto job_b = lane.submit(f.task(b, "b"));
  const auto job_c = other.submit(f.task(c, "c"));
  a.begun.pass();
  Gate waits;
  std::thread waiting([&] {
    waits.open();
    job_b->wait();
  });
  waits.pass();
  unwind(lane);
  waiting.join();
  job_a->wait();
  lane.submit(f.task(d, "d"))->wait();
  CHECK_FALSE(d.begun.is_open());
  CHECK(lane.error().empty());
  // Others go on.
  c.may_end.open();
  job_c->wait();
  CHECK_FALSE(b.begun.is_open());
}

TEST_CASE("stack unwinding during a step ends the job, and the end of the step changes nothing") {
  // Blocks in its step, as a call into a network may.
  class Blocking final : public HostTask {
   public:
    Blocking(Gate& begun, Gate& go_on) : begun_(begun), go_on_(go_on) {}
    Progress advance() override {
      begun_.open();
      go_on_.pass();
      return Progress::kDone;
    }

   private:
    Gate& begun_;
    Gate& go_on_;
  };
  CommunicationThread thread(Runs::kBeside);
  Lane lane(thread);
  Gate begun, go_on;
  const auto job = lane.submit(std::make_unique<Blocking>(begun, go_on));
  begun.pass();
  std::atomic<bool> left{false};
  std::thread leaving([&] {
    unwind(lane);
    left = true;
  });
  job->wait();
  CHECK(job->state() == CollectiveState::kCompleted);
  // The lane's end waits for the step.
  CHECK_FALSE(left);
  go_on.open();
  leaving.join();
}

TEST_CASE("the end of a lane waits for its jobs") {
  Fixture f;
  Gates a, b;
  CommunicationThread thread(Runs::kBeside);
  auto lane = std::make_unique<Lane>(thread);
  lane->submit(f.task(a, "a"));
  lane->submit(f.task(b, "b"));
  Gate leaves;
  std::thread leaving([&] {
    leaves.open();
    lane.reset();
    f.story.add("left");
  });
  leaves.pass();
  a.may_end.open();
  b.begun.pass();
  b.may_end.open();
  leaving.join();
  CHECK(f.events() == Events{"begin a", "end a", "begin b", "end b", "left"});
}

TEST_CASE("stack unwinding abandons jobs, started or not") {
  Fixture f;
  Gates a, b;
  CommunicationThread thread(Runs::kBeside);
  std::shared_ptr<Job> kept;
  try {
    Lane lane(thread);
    kept = lane.submit(f.task(a, "a"));
    lane.submit(f.task(b, "b"));
    a.begun.pass();
    throw std::runtime_error("the run has failed");
  } catch (const std::runtime_error&) {
  }
  kept->wait();
  kept.reset();
  a.destroyed.pass();
  b.destroyed.pass();
  CHECK(f.events() == Events{"begin a"});
}

TEST_CASE("with kInCaller, a job has ended when submit() returns, even within a HostOrder") {
  Fixture f;
  Gates a, b, c;
  CommunicationThread thread(Runs::kInCaller);
  CHECK_FALSE(thread.runs_beside());
  Lane lane(thread), other(thread);
  for (Gates* const gates : {&a, &b, &c}) gates->may_end.open();
  const auto job = lane.submit(f.task(a, "a"));
  CHECK(job->state() == CollectiveState::kCompleted);
  {
    HostOrder order;
    job->wait();
    order.run([&] { f.story.add("function"); });
    CHECK(other.submit(f.task(b, "b"))->state() == CollectiveState::kCompleted);
  }
  CHECK(f.events() == Events{"begin a", "end a", "function", "begin b", "end b"});
  CHECK_THROWS_WITH(lane.submit(f.task(c, "c", /*fails=*/true)), "c failed");
}

TEST_CASE("random programs of jobs respect lanes and HostOrders") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::minstd_rand random(seed);
    const auto below = [&](unsigned limit) { return random() % limit; };
    // Ends after some steps, and notes when, counted over all jobs.
    struct Noted final : HostTask {
      Noted(std::atomic<int>& clock, int& begun, int& ended, int steps)
          : clock(clock), begun(begun), ended(ended), steps(steps) {}
      Progress advance() override {
        if (begun == 0) begun = ++clock;
        if (steps-- > 0) return steps % 3 == 0 ? Progress::kSome : Progress::kNone;
        ended = ++clock;
        return Progress::kDone;
      }
      std::atomic<int>& clock;
      int& begun;
      int& ended;
      int steps;
    };
    CommunicationThread thread(Runs::kBeside);
    std::array<std::optional<Lane>, 3> lanes;
    for (auto& lane : lanes) lane.emplace(thread);
    constexpr size_t kJobs = 40;
    std::atomic<int> clock{0};
    std::array<int, kJobs> begun{}, ended{}, lane_of{};
    std::array<std::set<size_t>, kJobs> after;
    std::vector<std::shared_ptr<Job>> jobs;
    for (size_t i = 0; i < kJobs; ++i) {
      lane_of[i] = static_cast<int>(below(lanes.size()));
      std::optional<HostOrder> order;
      if (below(3) == 0) order.emplace();
      for (unsigned w = below(3); w > 0 && i > 0; --w) {
        const size_t waited = below(static_cast<unsigned>(i));
        jobs[waited]->wait();
        if (order) {
          after[i].insert(waited);
        } else {
          REQUIRE(ended[waited] > 0);
        }
      }
      jobs.push_back(lanes[static_cast<size_t>(lane_of[i])]->submit(
          std::make_unique<Noted>(clock, begun[i], ended[i], static_cast<int>(below(6)))));
    }
    for (auto& lane : lanes) lane.reset();
    for (size_t i = 0; i < kJobs; ++i) {
      REQUIRE(ended[i] > 0);
      for (size_t earlier = 0; earlier < i; ++earlier) {
        if (lane_of[earlier] == lane_of[i]) REQUIRE(ended[earlier] < begun[i]);
      }
      for (const size_t waited : after[i]) REQUIRE(ended[waited] < begun[i]);
    }
  }
}

}  // namespace mpzero::parallel
