#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/liveness/decision/rank_watch.hpp"
#include "tests/catch.hpp"

namespace mpzero {

// The ranks of a run, their network and the checkpoint folder, in virtual time: each rank is a RankWatch. Processes can
// be killed and stopped, meet errors, leave and have no descriptors, nodes lose power, connections between nodes be cut
// for a while.
//
// The network keeps TCP's promises and no others: what is sent arrives in order, late if it must, or not at all; the
// end of a process closes its connections; a stopped process accepts connections and says nothing; what a cut has
// delayed comes up to as long after its end as it lasted, as with TCP's retransmissions. Where a cut has one direction
// only, what is sent in the other one arrives for some seconds, until too much of it is unacknowledged.
class SimulatedRun {
 public:
  using Time = LivenessTime;
  struct Options {
    int num_nodes = 4;
    int ranks_per_node = 8;
    double silent_after = 60;
    double disk_seconds = 0;  // that it takes to write failure.json
    uint64_t seed = 1;
  };
  struct Written {
    int by = 0;
    double at = 0;
    Verdict verdict;
    bool in_file = false;
  };

  explicit SimulatedRun(const Options& options)
      : options_(options), random_(options.seed), node_down_(static_cast<size_t>(options.num_nodes)) {
    const int world_size = options.num_nodes * options.ranks_per_node;
    for (int rank = 0; rank < world_size; ++rank) {
      const std::string node = "node" + std::to_string(node_of(rank));
      identities_.push_back(
          {.rank = rank, .host = node, .machine = node, .pid = 1000 + rank, .started = 1, .port = 1, .addresses = {}});
    }
    for (int rank = 0; rank < world_size; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(*this, rank));
      if (rank > 0) ranks_.back()->link = connect(rank, 0);
      run_later(random(0, 1), [this, rank] { turn(rank); });
    }
  }

  int node_of(int rank) const { return rank / options_.ranks_per_node; }
  int size() const { return static_cast<int>(ranks_.size()); }
  std::vector<int> ranks_of(int node) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank) {
      if (node_of(rank) == node) ranks.push_back(rank);
    }
    return ranks;
  }

  // What happens to the run.
  void at(double when, const std::function<void()>& what) { events_.push({when, next_++, what}); }
  void kill(int rank) {
    hit_.insert(rank);
    end(rank);
  }
  // It ends because of what has happened to another rank. A stopped process does not.
  void abort(int rank) {
    if (!is_stopped(rank)) end(rank);
  }
  void stop(int rank, double seconds) {
    hit_.insert(rank);
    at_rank(rank).stopped_until = std::max(at_rank(rank).stopped_until, now_ + seconds);
  }
  // Its network reports an error, or its training thread does: the rank itself lives.
  void fail(int rank, const std::string& error, const std::vector<int>& culprits = {}) {
    // Errors are polled once a second.
    run_later(random(0, 1), [this, rank, error, culprits] {
      at_rank(rank).error = error;
      at_rank(rank).culprits = culprits;
      if (at_rank(rank).alive) act_if_running(rank);
    });
  }
  // It ends normally: the training is over. A monitor waits for the others, but not for ever.
  void leave(int rank) {
    Rank& one = at_rank(rank);
    if (!one.alive || one.ended) return;
    one.leaves_since = now_;
    act_if_running(rank);
  }
  // From now on this rank cannot open a connection.
  void use_up_descriptors(int rank) { at_rank(rank).has_descriptors = false; }
  void power_off(int node) {
    node_down_[static_cast<size_t>(node)] = true;
    for (const int rank : ranks_of(node)) at_rank(rank).alive = false;
  }
  // The connections between these nodes, in both directions.
  void cut(int one, int other, double seconds) {
    cuts_[{std::min(one, other), std::max(one, other)}] = {
        .begin = now_, .end = now_ + seconds, .delay = random(0, seconds), .speaker = std::nullopt};
  }
  void cut_off(const std::set<int>& nodes, double seconds) {
    for (const auto& [inside, outside] : across(nodes)) cut(inside, outside, seconds);
  }
  // Only what the other nodes send to these is lost.
  void deafen(const std::set<int>& nodes, double seconds) {
    for (const auto& [inside, outside] : across(nodes)) {
      cut(inside, outside, seconds);
      find_cut_of_nodes(inside, outside)->second.speaker = inside;
    }
  }
  // This rank does not reach the collective that the others wait in.
  void hang(int rank) {
    hangs_.insert(rank);
    block();
  }
  // No rank makes progress from now on.
  void block() { blocked_since_ = std::min(blocked_since_.value_or(now_), now_); }
  void limit_progress(double seconds) { allowed_ = seconds; }

  void run_until(double when) {
    while (!events_.empty() && events_.top().when <= when) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.when;
      event.work();
    }
    now_ = when;
  }

  // What came of it.
  double now() const { return now_; }
  const std::vector<Written>& verdicts() const { return verdicts_; }
  const std::optional<Written>& file() const { return file_; }
  // The ranks that could reach, over any number of nodes, only a minority of nodes, if everything had happened at once.
  std::set<int> minorities() const {
    std::set<int> ranks;
    for (int first = 0; first < options_.num_nodes; ++first) {
      std::set<int> reached = {first};
      std::vector<int> next = {first};
      while (!next.empty() && !is_hit(first)) {
        const int node = next.back();
        next.pop_back();
        for (int other = 0; other < options_.num_nodes; ++other) {
          if (cuts_.contains({std::min(node, other), std::max(node, other)})) continue;
          if (!is_hit(other) && reached.insert(other).second) next.push_back(other);
        }
      }
      if (2 * reached.size() >= static_cast<size_t>(options_.num_nodes)) continue;
      for (const int rank : ranks_of(first)) ranks.insert(rank);
    }
    return ranks;
  }
  // Ranks that run, and do not know that the run has ended.
  std::vector<int> waiting() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank) {
      const Rank& one = *ranks_[static_cast<size_t>(rank)];
      if (one.alive && one.stopped_until <= now_) ranks.push_back(rank);
    }
    return ranks;
  }
  bool is_stopped(int rank) { return at_rank(rank).stopped_until > now_; }
  // Whether it is connecting to another rank.
  bool probes(int rank) { return !at_rank(rank).dialed.empty(); }
  double random(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  int random(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }

 private:
  struct Event {
    double when;
    int64_t number;
    std::function<void()> work;
    bool operator<(const Event& other) const { return std::pair(when, number) > std::pair(other.when, other.number); }
  };
  struct Cut {
    double begin;
    double end;
    double delay;                // after the end, of what was sent meanwhile
    std::optional<int> speaker;  // the node whose packets still arrive; none: neither's
  };
  // A TCP connection of two ranks.
  struct Connection {
    int dialer;
    int acceptor;
    std::map<int, bool> closed_by;
    std::map<int, double> last_arrival;  // at the rank; keeps the order
  };
  using Link = std::shared_ptr<Connection>;

  class Rank final : public WatchWires {
   public:
    Rank(SimulatedRun& run, int number)
        : run(run), number(number), watch(run.identities_, number, run.options_.silent_after, *this, run.time()) {}
    void to_monitor(const message::Any& message) override {
      if (link) run.send(link, number, message);
    }
    void to_reporters(const message::Any& message) override {
      for (const auto& [rank, connection] : reporters) run.send(connection, number, message);
    }
    void dial(int rank, LivenessClock::duration limit) override { run.dial(number, rank, in_seconds(limit)); }
    void hang_up(int rank) override {
      const auto found = dialed.find(rank);
      if (found == dialed.end()) return;
      if (found->second) {
        run.send(found->second, number, message::Visit{});
        run.close(found->second, number);
      }
      dialed.erase(found);
    }
    void report_to(int rank) override {
      link = dialed.at(rank);
      dialed.erase(rank);
    }
    void leave_monitor() override {
      if (link) run.close(link, number);
      link.reset();
    }
    void abandon_monitor() override { leave_monitor(); }

    SimulatedRun& run;
    int number;
    bool alive = true;
    double stopped_until = 0;
    double last_turn = 0;
    double busy_until = 0;
    bool ended = false;
    bool has_descriptors = true;
    std::optional<double> leaves_since;
    std::optional<std::string> error;
    std::vector<int> culprits;
    Link link;
    std::map<int, Link> reporters;
    std::map<int, Link> dialed;    // no connection yet: none
    std::map<int, int64_t> dials;  // the number of the last dial of a rank
    std::vector<std::function<void()>> inbox;
    RankWatch watch;
  };

  Rank& at_rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  Time time() const {
    return Time() + std::chrono::duration_cast<LivenessClock::duration>(std::chrono::duration<double>(1000 + now_));
  }
  void run_later(double after, std::function<void()> work) { events_.push({now_ + after, next_++, std::move(work)}); }

  bool is_hit(int node) const {
    const std::vector<int> ranks = ranks_of(node);
    return node_down_[static_cast<size_t>(node)] ||
           std::all_of(ranks.begin(), ranks.end(), [this](int rank) { return hit_.contains(rank); });
  }
  bool is_down(int rank) const { return node_down_[static_cast<size_t>(node_of(rank))]; }
  auto find_cut(int from, int to) { return find_cut_of_nodes(node_of(from), node_of(to)); }
  std::map<std::pair<int, int>, Cut>::iterator find_cut_of_nodes(int one, int other) {
    return cuts_.find({std::min(one, other), std::max(one, other)});
  }
  // The pairs of a node of these and another one.
  std::vector<std::pair<int, int>> across(const std::set<int>& nodes) const {
    std::vector<std::pair<int, int>> pairs;
    for (const int inside : nodes) {
      for (int outside = 0; outside < options_.num_nodes; ++outside) {
        if (!nodes.contains(outside)) pairs.emplace_back(inside, outside);
      }
    }
    return pairs;
  }

  // When what is sent now between the nodes of these ranks arrives; std::nullopt: never.
  std::optional<double> arrival(int from, int to) {
    if (is_down(from) || is_down(to)) return std::nullopt;
    const double latency = random(0.0001, 0.002);
    const auto cut = find_cut(from, to);
    if (cut == cuts_.end() || now_ < cut->second.begin) return now_ + latency;
    if (cut->second.speaker == node_of(from) && now_ < cut->second.begin + kUnacknowledged) return now_ + latency;
    const double works_again = cut->second.end + cut->second.delay;
    return now_ < works_again ? works_again + latency : now_ + latency;
  }

  Link connect(int dialer, int acceptor) {
    auto link = std::make_shared<Connection>(
        Connection{.dialer = dialer, .acceptor = acceptor, .closed_by = {}, .last_arrival = {}});
    at_rank(acceptor).reporters[dialer] = link;
    return link;
  }

  // Runs `work` at the rank of the other side, in order.
  void deliver(const Link& link, int from, std::function<void(Rank&)> work) {
    const int to = link->dialer == from ? link->acceptor : link->dialer;
    const std::optional<double> when = arrival(from, to);
    if (!when) return;
    double& last = link->last_arrival[to];
    last = std::max(last, *when);
    at(last, [this, link, to, work = std::move(work)] {
      if (is_down(to)) return;
      receive(to, [this, link, to, work] { work(at_rank(to)); });
    });
  }

  void send(const Link& link, int from, const message::Any& message) {
    if (link->closed_by[from]) return;
    const int to = link->dialer == from ? link->acceptor : link->dialer;
    deliver(link, from, [this, link, from, to, message](Rank& rank) {
      if (link->closed_by[to]) return;
      if (link->acceptor == to) {
        rank.watch.hear_reporter(from, message, time());
        if (std::holds_alternative<message::Bye>(message) || std::holds_alternative<message::Visit>(message))
          close(link, to);
      } else if (rank.link == link) {
        rank.watch.hear_monitor(message, time());
      } else if (const auto dialed = rank.dialed.find(from); dialed != rank.dialed.end() && dialed->second == link) {
        rank.watch.hear_dialed(message);
      }
    });
  }

  void close(const Link& link, int by) {
    if (std::exchange(link->closed_by[by], true)) return;
    if (link->acceptor == by) std::erase_if(at_rank(by).reporters, [&](const auto& one) { return one.second == link; });
    const int to = link->dialer == by ? link->acceptor : link->dialer;
    deliver(link, by, [this, link, by, to](Rank& rank) {
      if (link->closed_by[to]) return;
      link->closed_by[to] = true;
      if (link->acceptor == to) {
        const auto found = rank.reporters.find(by);
        if (found == rank.reporters.end() || found->second != link) return;
        rank.reporters.erase(found);
        rank.watch.lose_reporter(by);
      } else if (rank.link == link) {
        rank.link.reset();
        rank.watch.lose_monitor(/*by_network=*/false, time());
      } else if (const auto dialed = rank.dialed.find(by); dialed != rank.dialed.end() && dialed->second == link) {
        rank.dialed.erase(dialed);
        rank.watch.lose_dialed(by, /*by_network=*/false, time());
      }
    });
  }

  void dial(int from, int to, double limit) {
    at_rank(from).dialed[to] = nullptr;
    at_rank(from).dials[to] = next_++;
    try_to_connect(from, to, now_ + limit, /*attempt=*/0, /*mute=*/false);
  }

  // TCP asks again after 1 s, 3 s and 7 s.
  void try_to_connect(int from, int to, double until, int attempt, bool mute) {
    const int64_t number = at_rank(from).dials.at(to);
    const auto answer = [this, from, to, number](std::optional<message::Reach> reach) {
      receive(from, [this, from, to, number, reach] {
        Rank& rank = at_rank(from);
        const auto found = rank.dialed.find(to);
        if (found == rank.dialed.end() || found->second || rank.dials.at(to) != number) return;
        if (reach == message::Reach::kAnswers) {
          found->second = connect(from, to);
        } else {
          rank.dialed.erase(found);
        }
        rank.watch.dialed(to, reach, time());
      });
    };
    const auto cut = find_cut(from, to);
    const bool is_cut = cut != cuts_.end() && now_ >= cut->second.begin && now_ < cut->second.end;
    const Rank& other = at_rank(to);
    if (!is_cut && !is_down(to) && !other.alive)
      return at(now_ + 0.001, [answer] { answer(message::Reach::kRefused); });
    const bool stopped = other.stopped_until > now_ || other.busy_until > now_;
    if (!at_rank(from).has_descriptors) return at(until, [answer] { answer(kCannotTry); });
    if (!is_cut && !is_down(to) && !stopped) {
      // A process that is stopped past the limit finds a connection that has told it nothing.
      const bool sleeps = at_rank(from).stopped_until > until;
      const auto reach = sleeps ? message::Reach::kMute : message::Reach::kAnswers;
      return at(now_ + 0.003, [answer, reach] { answer(reach); });
    }
    mute = mute || (!is_cut && !is_down(to));
    const double again = now_ + (mute ? 0.1 : static_cast<double>(1 << attempt));
    if (again >= until) {
      return at(until, [answer, mute] { answer(mute ? message::Reach::kMute : message::Reach::kUnreachable); });
    }
    at(again, [=, this] {
      if (at_rank(from).dials.at(to) == number) try_to_connect(from, to, until, attempt + 1, mute);
    });
  }

  // A process takes what arrives when it runs.
  void receive(int rank, std::function<void()> work) {
    Rank& one = at_rank(rank);
    if (!one.alive) return;
    one.inbox.push_back(std::move(work));
    if (one.inbox.size() == 1 && one.stopped_until <= now_ && one.busy_until <= now_) {
      run_later(random(0, 0.01), [this, rank] { take_inbox(rank); });
    }
  }

  void take_inbox(int rank) {
    Rank& one = at_rank(rank);
    if (!one.alive || one.stopped_until > now_ || one.busy_until > now_) return;
    notice_sleep(one);
    for (const auto& work : std::exchange(one.inbox, {})) {
      if (one.alive) work();
    }
    act(one);
  }

  void notice_sleep(Rank& one) {
    const double turn = now_ - one.last_turn;
    if (turn > kLongTurn) {
      one.watch.slept(std::chrono::duration_cast<LivenessClock::duration>(std::chrono::duration<double>(turn - kTurn)),
                      time());
    }
    one.last_turn = now_;
  }

  // A turn of the rank's thread.
  void turn(int rank) {
    Rank& one = at_rank(rank);
    if (!one.alive) return;
    if (one.stopped_until > now_) return at(one.stopped_until + random(0, 0.1), [this, rank] { turn(rank); });
    if (one.busy_until > now_) return at(one.busy_until, [this, rank] { turn(rank); });
    take_inbox(rank);
    if (one.alive) run_later(kTurn, [this, rank] { turn(rank); });
  }

  void act(Rank& one) {
    if (!one.alive || one.ended) return;
    const bool has_news = one.error && !one.watch.has_reported_error();
    if (has_news || time() >= one.watch.next_beat()) one.watch.beat(report(one), time());
    one.watch.look(time());
    if (!one.watch.ended()) return leave_if_due(one);
    one.ended = true;
    const double writing = one.watch.ended()->verdict ? options_.disk_seconds : 0;
    one.busy_until = now_ + writing;
    run_later(writing, [this, &one] { finish(one); });
  }

  void act_if_running(int rank) {
    Rank& one = at_rank(rank);
    if (one.stopped_until <= now_ && one.busy_until <= now_) take_inbox(rank);
  }

  void leave_if_due(Rank& one) {
    if (!one.leaves_since) return;
    if (one.watch.monitors()) {
      const bool waits = !one.watch.records().all_ended_but(one.number) && now_ < *one.leaves_since + kLastRankLimit;
      if (waits) return;
      one.to_reporters(message::Bye{});
    }
    one.to_monitor(message::Bye{});
    end(one.number);
  }

  void finish(Rank& one) {
    if (!one.alive) return;
    const RankWatch::Ending& ending = *one.watch.ended();
    if (ending.verdict) {
      verdicts_.push_back({.by = one.number, .at = now_, .verdict = *ending.verdict});
      const std::optional<int> written = file_ ? std::optional(file_->verdict.foundation) : std::nullopt;
      verdicts_.back().in_file = counts_more(*ending.verdict, written);
      if (verdicts_.back().in_file) file_ = verdicts_.back();
    }
    one.to_reporters(ending.end);
    for (const int rank : ending.end.kill) {
      if (node_of(rank) == node_of(one.number)) end(rank);
    }
    end(one.number);
  }

  // The process has ended: the system closes its connections.
  void end(int rank) {
    Rank& one = at_rank(rank);
    if (!one.alive) return;
    one.alive = false;
    const auto reporters = one.reporters;
    for (const auto& [other, link] : reporters) close(link, rank);
    if (one.link) close(one.link, rank);
    for (const auto& [other, link] : one.dialed) {
      if (link) close(link, rank);
    }
  }

  // All ranks make two collectives a second, until one of them holds the others up.
  RankReport report(const Rank& rank) const {
    const double idle = blocked_since_ ? now_ - *blocked_since_ : 0.1;
    const auto common = static_cast<int64_t>(8 + 2 * blocked_since_.value_or(now_));
    const int64_t queued = hangs_.contains(rank.number) ? common - 1 : common;
    RankStatus status{
        .step = 5, .phase = RunPhase::kTraining, .idle = idle, .allowed = allowed_, .channels = {}, .complaint = {}};
    status.channels.push_back({.name = "gradients",
                               .ranks = {},
                               .queued = queued,
                               .started = queued,
                               .completed = common - 1,
                               .last = {{.sequence = queued,
                                         .operation = "all_reduce",
                                         .bytes = 1,
                                         .state = parallel::CollectiveState::kStarted,
                                         .seconds = idle}}});
    return {.status = std::move(status), .error = rank.error, .culprits = rank.culprits};
  }

  static constexpr double kTurn = 0.25;
  static constexpr double kLongTurn = 1;
  // A few heartbeats.
  static constexpr double kUnacknowledged = 12;
  static constexpr double kLastRankLimit = 10;
  static constexpr std::optional<message::Reach> kCannotTry = std::nullopt;

  Options options_;
  std::mt19937_64 random_;
  std::vector<RankIdentity> identities_;
  std::vector<bool> node_down_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::pair<int, int>, Cut> cuts_;
  std::priority_queue<Event> events_;
  int64_t next_ = 0;
  double now_ = 0;
  std::set<int> hit_;  // ranks that were killed or stopped
  std::set<int> hangs_;
  std::optional<double> blocked_since_;
  double allowed_ = 0;
  std::vector<Written> verdicts_;
  std::optional<Written> file_;
};

}  // namespace mpzero
