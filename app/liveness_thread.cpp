#include "app/liveness_thread.hpp"

#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "app/nccl_ras.hpp"
#include "base/error.hpp"
#include "io/atomic_file.hpp"

namespace mpzero {
namespace {

using nlohmann::json;
using std::chrono::duration;
using std::chrono::milliseconds;
using State = RankRecord::State;

constexpr milliseconds kBeat(1000);
// The longest that a rank may be silent; less where --stuck_after is less.
constexpr double kSilentAfter = 60;
// Some heartbeats.
constexpr double kLeastSilence = 3;
// Set-up, the first step and checkpoints may take this many times --stuck_after.
constexpr double kLongPhases = 3;
// A thread that has not run for longer was stopped, or its machine was.
constexpr double kSleep = 5;
constexpr milliseconds kMeetingLimit(3000);
constexpr milliseconds kTakeOverLimit(1000);
constexpr milliseconds kFarewell(300);
constexpr milliseconds kAbortLimit(3000);
constexpr milliseconds kDiskLimit(3000);
constexpr milliseconds kLastRankLimit(10'000);
// For MPI to end the ranks once one of them has told its error.
constexpr milliseconds kErrorLimit(60'000);
constexpr milliseconds kStopSettle(300);
constexpr milliseconds kStopLimit(3000);
// After which a rank whose new monitor says nothing ends the run itself.
constexpr milliseconds kTakeOverPatience(10'000);
constexpr size_t kCollectivesSent = 6;

double seconds(RankMonitor::Clock::duration time) { return duration<double>(time).count(); }

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string message(const char* type) { return json{{"t", type}}.dump(); }

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// A monitor keeps a connection to every rank, and any rank can become one.
void allow_connections(int world_size) {
  constexpr rlim_t kOthers = 512;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(world_size) + kOthers;
  if (files.rlim_cur >= wanted) return;
  files.rlim_cur = std::min(wanted, files.rlim_max);
  setrlimit(RLIMIT_NOFILE, &files);
}

bool takes_long(RunPhase phase) {
  return phase == RunPhase::kSetUp || phase == RunPhase::kFirstStep || phase == RunPhase::kCheckpoint;
}

// Runs `work` on a thread of its own and goes on after `limit` even if that still stands, as on a file system that does
// not answer; only for a process that is about to end.
void no_longer_than(milliseconds limit, std::function<void()> work) {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  std::thread([done, work = std::move(work)] {
    work();
    *done = true;
  }).detach();
  for (const auto start = std::chrono::steady_clock::now();
       !*done && std::chrono::steady_clock::now() - start < limit;) {
    std::this_thread::sleep_for(milliseconds(2));
  }
}

void print(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

Liveness::Thread::Thread(parallel::MpiRuntime& mpi, const StopRequest& stop, Options options)
    : stop_(stop),
      options_(std::move(options)),
      rank_(mpi.rank()),
      silent_after_(options_.stuck_after > 0 ? std::clamp(options_.stuck_after, kLeastSilence, kSilentAfter) : 0) {
  allow_connections(mpi.world_size());
  warning = meet(mpi);
  connected_ = warning.empty();
  mpi.record_in(&recorder.channel("control", parallel::FlightRecorder::Shows::kNothing));
  const Time now = Clock::now();
  role_ = rank_ == 0 ? Role::kMonitors : Role::kReports;
  monitor_.emplace(ranks_, silent_after_, now);
  last_pulse_ = last_motion_ = now;
  last_beat_ = now - kBeat;
  // Signals are for the thread that trains.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Liveness::Thread::~Thread() {
  leaves_in_haste_ = std::uncaught_exceptions() > 0;
  phase_ = RunPhase::kEnding;
  moved_on();
  leaving_ = true;
  thread_.join();
}

std::string Liveness::Thread::meet(parallel::MpiRuntime& mpi) {
  std::string problem;
  try {
    listener_.emplace();
  } catch (const Error& error) {
    problem = error.what();
  }
  json introduction = this_process(rank_, listener_ ? listener_->port() : 0);
  if (rank_ == 0) introduction["token"] = random_token();
  const std::vector<std::string> introductions = mpi.all_gather(text_of(introduction));
  for (const std::string& text : introductions) ranks_.push_back(json::parse(text).get<RankIdentity>());
  token_ = json::parse(introductions.front()).at("token").get<std::string>();
  if (rank_ != 0 && problem.empty() && !connect_to_monitor(kMeetingLimit)) {
    problem = fmt::format("rank {} on {} does not reach rank 0 on {} over TCP (port {})", rank_,
                          ranks_[static_cast<size_t>(rank_)].host, ranks_.front().host, ranks_.front().port);
  }
  for (const std::string& text : mpi.all_gather(problem)) {
    if (text.empty()) continue;
    uplink_.reset();
    return fmt::format(
        "the ranks do not watch each other, so that a rank that hangs is not noticed: {}; let the nodes of a job "
        "connect to each other on every port.",
        text);
  }
  return "";
}

bool Liveness::Thread::connect_to_monitor(milliseconds limit) {
  const RankIdentity& to = ranks_[static_cast<size_t>(monitor_rank_)];
  const std::string loopback = "127.0.0.1";
  std::vector<std::string> addresses;
  const bool same_machine = to.machine == ranks_[static_cast<size_t>(rank_)].machine;
  if (same_machine) addresses.push_back(loopback);
  addresses.insert(addresses.end(), to.addresses.begin(), to.addresses.end());
  for (const std::string& address : addresses) {
    uplink_ = connect_to(address, to.port, limit);
    if (!uplink_) continue;
    uplink_->send(text_of({{"t", "hello"}, {"token", token_}, {"rank", rank_}}));
    return true;
  }
  return false;
}

void Liveness::Thread::enter(RunPhase phase, int64_t step) {
  step_ = step;
  phase_ = phase;
  moved_on();
}

void Liveness::Thread::watch(std::vector<parallel::Communicator*> communicators) {
  const std::lock_guard lock(mutex_);
  communicators_ = std::move(communicators);
}

void Liveness::Thread::failed(const std::string& error) {
  if (!connected_) return;
  {
    const std::lock_guard lock(mutex_);
    error_ = error;
  }
  // The thread ends the process.
  std::this_thread::sleep_for(kTakeOverPatience + kStopLimit);
}

void Liveness::Thread::run() {
  if (options_.device.is_cuda()) c10::cuda::set_device(options_.device.index());
  Time last_turn = Clock::now();
  while (!leaving_) {
    wait_for_news(last_beat_ + kBeat);
    const Time now = Clock::now();
    if (seconds(now - last_turn) > std::min(kSleep, silent_after_ > 0 ? silent_after_ / 2 : kSleep)) {
      last_pulse_ = last_motion_ = now;
      monitor_->slept(now);
    }
    last_turn = now;
    if (stop_.requested() || stop_asked_) handle_stop(now);
    if (!connected_) continue;
    if (uplink_) read_uplink(now);
    read_peers(now);
    bool urgent = false;
    {
      const std::lock_guard lock(mutex_);
      urgent = error_ && !said_failed_;
    }
    if (urgent || now - last_beat_ >= kBeat) beat(now);
    if (role_ == Role::kMonitors) look_for_failures(now);
  }
  leave();
}

void Liveness::Thread::wait_for_news(Time until) {
  constexpr milliseconds kLongest(100);
  std::vector<pollfd> wanted;
  const auto want = [&](int descriptor) { wanted.push_back({.fd = descriptor, .events = POLLIN, .revents = 0}); };
  want(stop_.descriptor());
  if (connected_) {
    want(listener_->descriptor());
    if (uplink_) want(uplink_->descriptor());
    for (const Peer& peer : peers_) {
      if (peer.open) want(peer.connection.descriptor());
    }
  }
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
  poll(wanted.data(), wanted.size(), static_cast<int>(std::clamp(left, milliseconds(0), kLongest).count()));
  if (wanted.front().revents != 0) stop_.drain();
}

std::optional<std::string> Liveness::Thread::device_error() {
  const std::lock_guard lock(mutex_);
  if (error_) return error_;
  try {
    recorder.poll();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  for (parallel::Communicator* communicator : communicators_) {
    if (std::optional<std::string> error = communicator->asynchronous_error()) return error;
  }
  return std::nullopt;
}

RankStatus Liveness::Thread::own_status(Time now) {
  const int64_t motion = recorder.events() + ticks_;
  if (motion != seen_motion_) last_motion_ = now;
  seen_motion_ = motion;
  const RunPhase phase = phase_;
  return {.step = step_,
          .phase = phase,
          .idle = seconds(now - last_motion_),
          .allowed = options_.stuck_after * (takes_long(phase) ? kLongPhases : 1),
          .channels = recorder.records(kCollectivesSent)};
}

void Liveness::Thread::beat(Time now) {
  last_beat_ = now;
  const std::optional<std::string> error = device_error();
  const RankStatus status = own_status(now);
  if (role_ == Role::kMonitors) {
    monitor_->heard(rank_, status, now);
    if (error) monitor_->failed(rank_, *error, now);
    broadcast(message("pulse"));
    return;
  }
  if (!uplink_) return;
  json words = status;
  words["t"] = "status";
  uplink_->send(text_of(words));
  if (error && !said_failed_) uplink_->send(text_of({{"t", "failed"}, {"error", *error}}));
  said_failed_ = error.has_value();
}

void Liveness::Thread::look_for_failures(Time now) {
  if (error_ends_run_) {
    // That rank tells its error and has MPI end the others, of whom the first to end are not to blame.
    if (now - *error_ends_run_ > kErrorLimit) end(kFailureExitCode);
    return;
  }
  if (!monitor_->alarmed(now)) {
    asked_ = false;
    return;
  }
  // What the ranks do now tells more than what they did in their last regular word.
  if (!asked_) {
    asked_ = true;
    broadcast(message("ask"));
    beat(now);
  }
  if (monitor_->concluded(now)) conclude();
}

void Liveness::Thread::handle_stop(Time now) {
  if (stop_.at_once()) {
    ask_to_stop(kInterruptedExitCode);
  } else if (phase_ == RunPhase::kSetUp) {
    ask_to_stop(kStoppedExitCode);
  }
  if (!stop_asked_) return;
  if (!connected_) end(*stop_code_);
  if (role_ == Role::kReports) {
    if (now - *stop_asked_ > kStopLimit) end(*stop_code_);
    return;
  }
  // A launcher asks all ranks to stop when one has died: that is a failure, and no wish of the user's.
  if (error_ends_run_ || monitor_->alarmed(now) || now - *stop_asked_ < kStopSettle) return;
  end_all(*stop_code_);
}

void Liveness::Thread::ask_to_stop(int exit_code) {
  if (stop_code_ && *stop_code_ >= exit_code) return;
  stop_code_ = exit_code;
  if (!stop_asked_) stop_asked_ = Clock::now();
  if (uplink_) uplink_->send(text_of({{"t", "stop"}, {"code", exit_code}}));
}

void Liveness::Thread::read_uplink(Time now) {
  uplink_->flush();
  const auto lines = uplink_->receive();
  if (!lines) {
    uplink_.reset();
    if (monitor_watches_) monitor_is_gone(State::kLost, now);
    return;
  }
  if (!lines->empty()) last_pulse_ = now;
  for (const std::string& line : *lines) {
    const json words = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const std::string type = words.is_object() ? words.value("t", "") : "";
    if (type == "bye") {
      monitor_watches_ = false;
      // Which the monitor waits for.
      uplink_.reset();
      return;
    }
    if (type == "ask") beat(now);
    if (type != "end") continue;
    for (const int rank : words.value("kill", std::vector<int>())) kill_process(ranks_.at(static_cast<size_t>(rank)));
    end(words.value("code", kFailureExitCode));
  }
  const bool waits_for_new_monitor = taken_over_ && now - *taken_over_ > kTakeOverPatience;
  if (monitor_watches_ &&
      ((silent_after_ > 0 && seconds(now - last_pulse_) > silent_after_) || waits_for_new_monitor)) {
    uplink_.reset();
    monitor_is_gone(State::kSilent, now);
  }
}

void Liveness::Thread::read_peers(Time now) {
  while (std::optional<LineConnection> connection = listener_->accept()) peers_.push_back({std::move(*connection)});
  for (Peer& peer : peers_) {
    if (!peer.open) continue;
    peer.connection.flush();
    const auto lines = peer.connection.receive();
    if (!lines) {
      peer.open = false;
      if (peer.rank >= 0) monitor_->lost(peer.rank);
      continue;
    }
    for (const std::string& line : *lines) hear(peer, line, now);
  }
}

void Liveness::Thread::hear(Peer& peer, const std::string& line, Time now) {
  try {
    const json words = json::parse(line);
    const auto type = words.at("t").get<std::string>();
    if (type == "hello") {
      const int rank = words.at("rank").get<int>();
      const bool known = rank >= 0 && rank < static_cast<int>(ranks_.size()) && rank != rank_;
      if (known && words.at("token").get<std::string>() == token_) peer.rank = rank;
    }
    if (peer.rank < 0) {
      peer.open = false;
      return;
    }
    if (type == "status") monitor_->heard(peer.rank, words.get<RankStatus>(), now);
    if (type == "failed") monitor_->failed(peer.rank, words.at("error").get<std::string>(), now);
    if (type == "bye") {
      monitor_->left(peer.rank);
      // Which the rank waits for.
      peer.connection.close();
      peer.open = false;
    }
    if (type == "bye" && words.value("error", false) && !error_ends_run_) error_ends_run_ = now;
    if (type == "stop" && role_ == Role::kMonitors) {
      ask_to_stop(words.at("code").get<int>());
      handle_stop(now);
    }
  } catch (const json::exception&) {
    // No rank of ours speaks so.
    peer.open = false;
  }
}

void Liveness::Thread::monitor_is_gone(State how, Time now) {
  // Each rank comes to the same successor, as long as the same ones are gone.
  while (true) {
    if (how == State::kLost) {
      monitor_->lost(monitor_rank_);
    } else {
      monitor_->silent(monitor_rank_, now);
    }
    const auto& records = monitor_->records();
    const auto next = std::find_if(records.begin(), records.end(), [](const RankRecord& one) {
      return one.state == State::kAnswers || one.state == State::kFailed;
    });
    monitor_rank_ = next->identity.rank;
    if (monitor_rank_ == rank_) return take_over(now);
    if (connect_to_monitor(kTakeOverLimit)) break;
    how = State::kSilent;
  }
  taken_over_ = now;
  last_pulse_ = now;
  said_failed_ = false;
  beat(now);
}

void Liveness::Thread::take_over(Time now) {
  const std::vector<RankRecord> known = monitor_->records();
  role_ = Role::kMonitors;
  monitor_->slept(now);
  for (const RankRecord& one : known) {
    if (one.state == State::kSilent) monitor_->silent(one.identity.rank, now);
  }
  beat(now);
}

void Liveness::Thread::broadcast(const std::string& line) {
  for (Peer& peer : peers_) {
    if (peer.open && peer.rank >= 0) peer.connection.send(line);
  }
}

std::string Liveness::Thread::newest_checkpoint() const {
  struct Answer {
    std::mutex mutex;
    std::string tag;
  };
  const auto answer = std::make_shared<Answer>();
  no_longer_than(kDiskLimit, [answer, folder = options_.checkpoint_dir] {
    std::string tag = latest_checkpoint(folder);
    const std::lock_guard lock(answer->mutex);
    answer->tag = std::move(tag);
  });
  const std::lock_guard lock(answer->mutex);
  return answer->tag;
}

void Liveness::Thread::conclude() {
  const std::vector<RankRecord>& records = monitor_->records();
  const Verdict verdict = find_culprits(records);
  const std::string tag = newest_checkpoint();
  std::string ras;
  const bool all_answer =
      std::all_of(records.begin(), records.end(), [](const auto& one) { return one.state == State::kAnswers; });
  // Its answer takes seconds, which a launcher that has lost a rank does not leave.
  if (all_answer && options_.device.is_cuda()) ras = nccl_ras_status();
  print(report_text(verdict, records, tag.empty() ? tag : (options_.checkpoint_dir / tag).string(), ras));
  no_longer_than(kDiskLimit, [file = options_.checkpoint_dir / "failure.json", text = report_json(verdict, records)] {
    try {
      io::replace_text_file(file, text);
    } catch (const std::exception& error) {
      print(fmt::format("mpzero: warning: failure.json could not be written: {}\n", error.what()));
    }
  });
  std::vector<int> silent;
  for (const RankRecord& one : records) {
    if (one.state == State::kSilent) silent.push_back(one.identity.rank);
  }
  broadcast(text_of({{"t", "end"}, {"code", kFailureExitCode}, {"kill", silent}}));
  for (const int rank : silent) kill_process(ranks_.at(static_cast<size_t>(rank)));
  end(kFailureExitCode);
}

void Liveness::Thread::end_all(int exit_code) {
  const std::string tag = newest_checkpoint();
  const std::string state = tag.empty() ? "no checkpoint was saved yet" : fmt::format("{} stays", tag);
  if (exit_code == kInterruptedExitCode) {
    print(fmt::format("mpzero: interrupted twice: stopped at once, without a save; {}.\n", state));
  } else {
    print(fmt::format("mpzero: stopped before the first step, so that there is nothing to save: {}.\n", state));
  }
  broadcast(text_of({{"t", "end"}, {"code", exit_code}}));
  end(exit_code);
}

void Liveness::Thread::end(int exit_code) {
  const auto all_sent = [&] {
    return std::none_of(peers_.begin(), peers_.end(),
                        [](const Peer& peer) { return peer.open && peer.connection.has_unsent(); });
  };
  for (const Time start = Clock::now(); !all_sent() && Clock::now() - start < kFarewell;) {
    for (Peer& peer : peers_) peer.connection.flush();
    std::this_thread::sleep_for(milliseconds(5));
  }
  // Kernels that wait for a peer end, so that the GPU is free for the next run. Aborting may itself wait for a peer.
  if (options_.device.is_cuda()) {
    no_longer_than(kAbortLimit, [this] {
      const std::lock_guard lock(mutex_);
      for (parallel::Communicator* communicator : communicators_) communicator->abort();
    });
  }
  std::_Exit(exit_code);
}

void Liveness::Thread::leave() {
  if (!connected_) return;
  if (uplink_) uplink_->send(text_of({{"t", "bye"}, {"error", leaves_in_haste_}}));
  const Time start = Clock::now();
  while (uplink_ && uplink_->has_unsent() && Clock::now() - start < kFarewell) {
    uplink_->flush();
    std::this_thread::sleep_for(milliseconds(5));
  }
  // A connection that is closed with words unread takes back those that it has sent and the other side has not read.
  if (uplink_) uplink_->end_sending();
  while (uplink_ && uplink_->receive() && Clock::now() - start < kFarewell) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  if (role_ != Role::kMonitors) return;
  // The others are on their way out too; one that fails there is still reported.
  while (!leaves_in_haste_ && !monitor_->all_gone_but(rank_) && Clock::now() - start < kLastRankLimit) {
    wait_for_news(last_beat_ + kBeat);
    const Time now = Clock::now();
    read_peers(now);
    if (now - last_beat_ >= kBeat) beat(now);
    look_for_failures(now);
  }
  // Those that have only just connected are to hear of it too, and all close their side before this one does.
  const auto read_until = [this](const auto& enough) {
    for (const Time since = Clock::now(); !enough() && Clock::now() - since < kFarewell;) {
      read_peers(Clock::now());
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  const auto introduced = [](const Peer& peer) { return peer.rank >= 0; };
  read_until([&] {
    return std::count_if(peers_.begin(), peers_.end(), introduced) + 1 >= static_cast<int64_t>(ranks_.size());
  });
  broadcast(message("bye"));
  read_until([&] {
    return std::none_of(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.open && introduced(peer); });
  });
}

}  // namespace mpzero
