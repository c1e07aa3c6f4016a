// bench_liveness_load [RANKS [SECONDS]]: the share of a core that rank 0's watch takes with so many ranks, over the
// loopback interface: one process with rank 0's connections and decisions, one that plays all other ranks. All of them
// connect before rank 0 accepts the first one, so that more than net.core.somaxconn ranks overfill its queue. Then a
// rank is closed: the time until the verdict, and whom it names. The process with the other ranks needs RANKS + 100
// open files.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <variant>
#include <vector>

#include "app/liveness/decision/rank_watch.hpp"
#include "app/liveness/link/rank_peers.hpp"
#include "app/liveness/watch_sockets.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

constexpr double kSilentAfter = 60;
constexpr int kPerNode = 8;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void allow_files() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// As a rank in a training step reports itself: three communicators with six collectives each.
RankStatus status(int64_t step) {
  RankStatus one;
  one.step = step;
  one.phase = RunPhase::kTraining;
  one.idle = 0.2;
  one.allowed = 600;
  for (const char* name : {"parameters", "gradients", "control"}) {
    parallel::ChannelRecord channel{.name = name,
                                    .ranks = {},
                                    .queued = 100'000 + step,
                                    .started = 100'000 + step,
                                    .completed = 99'999 + step,
                                    .last = {}};
    for (int i = 0; i < 6; ++i) {
      channel.last.push_back({.sequence = 99'995 + step + i,
                              .operation = "reduce_scatter",
                              .bytes = 123'456'789,
                              .state = parallel::CollectiveState::kCompleted,
                              .seconds = 0.123456});
    }
    one.channels.push_back(std::move(channel));
  }
  return one;
}

// Connects all ranks but 0. Writes a byte to `ready` once all of them have begun to.
std::vector<RankConnection> connect_others(const RankRoster& roster, int ready) {
  const SocketAddress to = socket_address(kLoopback, roster.identity(0).port).value();
  std::vector<RankConnection> all;
  for (int rank = 1; rank < roster.size(); ++rank) {
    Descriptor socket = make_socket(AF_INET);
    if (!socket || (connect(socket.get(), to.get(), to.length) != 0 && errno != EINPROGRESS)) _exit(EXIT_FAILURE);
    all.push_back(RankConnection::to(LineConnection(std::move(socket)),
                                     {.own = rank, .world_size = roster.size(), .secret = roster.secret}, 0,
                                     LivenessClock::now()));
  }
  if (write(ready, "x", 1) != 1) _exit(EXIT_FAILURE);
  while (!std::all_of(all.begin(), all.end(), [](const RankConnection& one) { return one.is_identified(); })) {
    for (RankConnection& one : all) {
      if (one.is_identified()) continue;
      one.flush();
      if (!one.receive()) _exit(EXIT_FAILURE);
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  return all;
}

// The number of the Ask that has arrived; 0: none. The process ends if rank 0 has ended.
int64_t hear_ask(RankConnection& connection) {
  const auto lines = connection.receive();
  if (!lines) _exit(EXIT_SUCCESS);
  int64_t asked = 0;
  for (const std::string& line : *lines) {
    const auto message = message::parse(line);
    if (const auto* ask = message ? std::get_if<message::Ask>(&*message) : nullptr) asked = ask->number;
  }
  return asked;
}

// All ranks but 0. The last one ends when `signal` can be read. From then on the others answer an Ask without waiting
// for their next heartbeat, as ranks do.
[[noreturn]] void play_others(const RankRoster& roster, int ready, int signal) {
  std::vector<RankConnection> all = connect_others(roster, ready);
  const double period = in_seconds(beat_period(kSilentAfter));
  const LivenessTime start = LivenessClock::now();
  bool one_has_ended = false;
  for (size_t sent = 0;; std::this_thread::sleep_for(milliseconds(1))) {
    pollfd wanted{.fd = signal, .events = POLLIN, .revents = 0};
    char byte = 0;
    if (poll(&wanted, 1, 0) == 1 && read(signal, &byte, 1) == 1) {
      all.pop_back();
      one_has_ended = true;
    }
    const auto answer = [&](RankConnection& one, int64_t step, int64_t asked) {
      one.send(message::to_line(message::Status{.status = status(step), .answers = asked}));
    };
    if (one_has_ended) {
      for (RankConnection& one : all) {
        if (const int64_t asked = hear_ask(one); asked != 0) answer(one, 0, asked);
      }
    }
    const double due = in_seconds(LivenessClock::now() - start) / period * static_cast<double>(all.size());
    for (; static_cast<double>(sent) < due; ++sent) {
      const size_t i = sent % all.size();
      const auto step = static_cast<int64_t>(sent / all.size());
      const int64_t asked = hear_ask(all[i]);
      if (asked != 0 || (static_cast<int64_t>(i) + step) % 10 == 0) {
        answer(all[i], step, asked);
      } else {
        all[i].send(
            message::to_line(message::Beat{.step = step, .phase = RunPhase::kTraining, .idle = 0.2, .allowed = 600}));
      }
    }
  }
}

// The thread of rank 0, as Liveness::Thread runs it.
class Monitor {
 public:
  Monitor(const RankRoster& roster, Listener listener)
      : sockets_(roster, RankPeers(std::move(listener), roster.credentials()), std::nullopt),
        watch_(roster.ranks, 0, kSilentAfter, sockets_, LivenessClock::now()) {}
  void take_turn() {
    std::this_thread::sleep_until(last_turn_ + milliseconds(10));
    std::vector<pollfd> wanted;
    sockets_.add_to(wanted);
    poll(wanted.data(), wanted.size(), 100);
    last_turn_ = LivenessClock::now();
    const bool urgent = sockets_.hear(watch_, last_turn_).is_urgent;
    if (last_turn_ >= watch_.next_beat())
      watch_.beat({.status = status(1), .error = std::nullopt, .culprits = {}}, last_turn_);
    if (urgent || last_turn_ >= next_look_) {
      next_look_ = last_turn_ + milliseconds(200);
      watch_.look(last_turn_);
    }
    ++turns;
  }
  int num_connected() { return sockets_.peers().num_connected(); }
  const std::optional<RankWatch::Ending>& ended() const { return watch_.ended(); }
  int turns = 0;

 private:
  WatchSockets sockets_;
  RankWatch watch_;
  LivenessTime last_turn_ = LivenessClock::now();
  LivenessTime next_look_ = last_turn_;
};

int measure(int ranks, double seconds) {
  allow_files();
  Listener listener({kLoopback});
  RankRoster roster;
  for (int rank = 0; rank < ranks; ++rank) {
    RankIdentity identity = this_process(rank, listener.port());
    identity.machine = identity.host = fmt::format("node{}", rank / kPerNode);
    identity.addresses = {kLoopback};
    roster.ranks.push_back(std::move(identity));
  }
  roster.secret = random_bytes();
  int ends[2] = {};
  int ready[2] = {};
  if (pipe(ends) != 0 || pipe(ready) != 0) return EXIT_FAILURE;
  const pid_t others = fork();
  if (others == 0) play_others(roster, ready[1], ends[0]);
  Monitor monitor(roster, std::move(listener));
  char byte = 0;
  close(ready[1]);
  if (read(ready[0], &byte, 1) != 1) return EXIT_FAILURE;
  LivenessTime start = LivenessClock::now();
  while (monitor.num_connected() < ranks - 1) monitor.take_turn();
  const double meeting = in_seconds(LivenessClock::now() - start);
  const double cpu = cpu_seconds();
  start = LivenessClock::now();
  monitor.turns = 0;
  while (in_seconds(LivenessClock::now() - start) < seconds) monitor.take_turn();
  const double wall = in_seconds(LivenessClock::now() - start);
  const double share = (cpu_seconds() - cpu) / wall;
  const double turns = monitor.turns / wall;
  if (write(ends[1], "x", 1) != 1) return EXIT_FAILURE;
  start = LivenessClock::now();
  while (!monitor.ended()) monitor.take_turn();
  fmt::print(
      "{} ranks: {:.1f}% of a core, {:.0f} turns a second; all connected after {:.1f} s; verdict {:.2f} s after the "
      "end of rank {}: names {}\n",
      ranks, 100 * share, turns, meeting, in_seconds(LivenessClock::now() - start), ranks - 1,
      fmt::join(monitor.ended()->verdict->ranks, ", "));
  kill(others, SIGKILL);
  waitpid(others, nullptr, 0);
  return monitor.ended()->verdict->ranks == std::vector<int>{ranks - 1} ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace mpzero

int main(int argc, char** argv) {
  constexpr int kRanks = 1000;
  constexpr double kSeconds = 20;
  return mpzero::measure(argc > 1 ? std::atoi(argv[1]) : kRanks, argc > 2 ? std::atof(argv[2]) : kSeconds);
}
