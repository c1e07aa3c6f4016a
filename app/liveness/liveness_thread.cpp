#include "app/liveness/liveness_thread.hpp"

#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <variant>
#include <vector>

#include "app/liveness/final_report.hpp"
#include "base/error.hpp"
#include "parallel/mpi/deadline.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeat(1000);
// The longest that a rank may be silent; less if --stuck_after is less.
constexpr double kSilentAfter = 60;
// A few heartbeats.
constexpr double kLeastSilence = 3;
// If a thread has not run for longer than this, it or its machine was stopped.
constexpr double kSleep = 5;
constexpr milliseconds kAbortLimit(3000);
constexpr milliseconds kLastRankLimit(10'000);
// Time for the run to end once a rank has failed, even if a new monitor has to end it.
constexpr milliseconds kFailedLimit(20'000);

double silence_limit(double stuck_after) {
  return stuck_after > 0 ? std::clamp(stuck_after, kLeastSilence, kSilentAfter) : 0;
}

}  // namespace

Liveness::Thread::Thread(RankMeeting meeting, const StopRequest& stop, Options options)
    : stop_(stop),
      options_(std::move(options)),
      report_facts_(report_facts(options_.checkpoint_dir, options_.device)),
      silent_after_(silence_limit(options_.stuck_after)),
      warning_(std::move(meeting.warning)),
      roster_(std::move(meeting.roster)),
      activity_(options_.stuck_after),
      role_(roster_.own == 0 ? Role::kMonitors : Role::kReports),
      link_(roster_, std::move(meeting.monitor), silent_after_, Clock::now()),
      peers_(std::move(meeting.peers)),
      monitor_(roster_.ranks, silent_after_, Clock::now()),
      last_beat_(Clock::now() - kBeat) {}

Liveness::Thread::Thread(parallel::MpiRuntime& mpi, const StopRequest& stop, Options options)
    : Thread(meet(mpi), stop, std::move(options)) {
  mpi_ = &mpi;
  mpi_->record_in(&activity_.recorder().channel("control", parallel::FlightRecorder::Shows::kNothing));
  // Signals are for the thread that trains.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  // CUDA reads the environment, which the start of the network is about to change on this thread.
  started_.wait();
}

Liveness::Thread::~Thread() {
  leaves_in_haste_ = std::uncaught_exceptions() > 0;
  activity_.enter(RunPhase::kEnding);
  leaving_ = true;
  if (thread_.joinable()) thread_.join();
  // The recorder is destroyed here, MPI is not.
  mpi_->record_in(nullptr);
}

bool Liveness::Thread::overdue(const std::string& message) {
  if (!peers_) return false;
  activity_.complain(message);
  return true;
}

void Liveness::Thread::failed(const std::string& error, const std::vector<int>& culprits) {
  if (!peers_) return;
  activity_.failed(error, culprits);
  // The other thread ends the process.
  std::this_thread::sleep_for(kFailedLimit);
}

void Liveness::Thread::run() {
  if (options_.device.is_cuda()) c10::cuda::set_device(options_.device.index());
  started_.count_down();
  const double sleep = silent_after_ > 0 ? std::min(kSleep, silent_after_ / 2) : kSleep;
  Time last_turn = Clock::now();
  while (!leaving_) {
    wait_for_news();
    const Time now = Clock::now();
    if (in_seconds(now - last_turn) > sleep) excuse_silence(now);
    last_turn = now;
    if (stop_.requested() || early_stop_.asked()) handle_stop(now);
    if (!peers_) continue;
    hear_monitor(now);
    hear_peers(now);
    beat_if_due(now);
    if (role_ == Role::kMonitors) look_for_failures(now);
  }
  if (peers_) leave();
}

void Liveness::Thread::wait_for_news() {
  constexpr milliseconds kLongest(100);
  std::vector<pollfd> wanted;
  const auto want = [&](int descriptor) { wanted.push_back({.fd = descriptor, .events = POLLIN, .revents = 0}); };
  want(stop_.descriptor());
  want(link_.descriptor());
  if (peers_) want(peers_->descriptor());
  Time wake = last_beat_ + kBeat;
  if (peers_ && peers_->rests_until()) wake = std::min(wake, *peers_->rests_until());
  const auto left = std::chrono::ceil<milliseconds>(wake - Clock::now());
  poll(wanted.data(), wanted.size(), static_cast<int>(std::clamp(left, milliseconds(0), kLongest).count()));
  if (wanted.front().revents != 0) stop_.drain();
}

void Liveness::Thread::excuse_silence(Time now) {
  link_.slept(now);
  activity_.slept(now);
  monitor_.slept(now);
}

void Liveness::Thread::hear_monitor(Time now) {
  const MonitorLink::News news = link_.hear(now);
  warn(news.warning);
  if (news.asked) beat(now);
  if (news.end) {
    kill_ranks(roster_, news.end->kill);
    end(news.end->exit_code);
  }
  if (!news.loss) return;
  if (!link_.turn_to_next(monitor_, *news.loss, now)) {
    role_ = Role::kMonitors;
    monitor_.take_over(now);
  }
  beat(now);
}

void Liveness::Thread::hear_peers(Time now) {
  for (const RankPeers::News& one : peers_->hear(now)) take(one, now);
  warn(peers_->take_warning(now));
}

void Liveness::Thread::warn(const std::string& message) const {
  if (message.empty()) return;
  fmt::print(stderr, "mpzero: warning: rank {} on {} {}.\n", roster_.own, roster_.identity(roster_.own).host, message);
}

void Liveness::Thread::take(const RankPeers::News& news, Time now) {
  if (!news.message) {
    monitor_.lost(news.rank);
  } else if (const auto* status = std::get_if<message::Status>(&*news.message)) {
    monitor_.heard(news.rank, status->status, now);
  } else if (const auto* failed = std::get_if<message::Failed>(&*news.message)) {
    monitor_.failed(news.rank, failed->error, now, failed->culprits);
  } else if (const auto* bye = std::get_if<message::Bye>(&*news.message)) {
    monitor_.left(news.rank, bye->with_error, now);
  } else if (const auto* stop = std::get_if<message::Stop>(&*news.message);
             stop != nullptr && role_ == Role::kMonitors) {
    ask_to_stop(stop->exit_code, now);
    handle_stop(now);
  }
}

void Liveness::Thread::beat_if_due(Time now) {
  const bool urgent = activity_.has_failed() && !link_.has_reported_error();
  if (urgent || now - last_beat_ >= kBeat) beat(now);
}

void Liveness::Thread::beat(Time now) {
  last_beat_ = now;
  const RankReport own = activity_.report(now);
  if (role_ == Role::kReports) {
    link_.report(own);
    return;
  }
  monitor_.heard(roster_.own, own.status, now);
  if (own.error) monitor_.failed(roster_.own, *own.error, now, own.culprits);
  peers_->broadcast(message::Pulse{});
}

void Liveness::Thread::look_for_failures(Time now) {
  switch (monitor_.look(now)) {
    case RankMonitor::Finding::kNothing:
      break;
    case RankMonitor::Finding::kAlarm:
      peers_->broadcast(message::Ask{});
      beat(now);
      break;
    case RankMonitor::Finding::kFailure:
      report_failure(monitor_.records(), report_facts_, [this] { peers_->broadcast(message::Pulse{}); });
      end_all({.exit_code = kFailureExitCode, .kill = monitor_.silent_ranks()});
    case RankMonitor::Finding::kOverdue:
      end(kFailureExitCode);
  }
}

void Liveness::Thread::handle_stop(Time now) {
  if (stop_.is_immediate()) {
    ask_to_stop(kInterruptedExitCode, now);
  } else if (activity_.phase() <= RunPhase::kSetUp) {
    ask_to_stop(kStoppedExitCode, now);
  }
  if (!early_stop_.asked()) return;
  const int exit_code = early_stop_.exit_code();
  if (!peers_) end(exit_code);
  if (role_ == Role::kReports) {
    if (early_stop_.overdue(now)) end(exit_code);
  } else if (early_stop_.settled(now) && !monitor_.alarmed(now)) {
    report_stop(exit_code, options_.checkpoint_dir);
    end_all({.exit_code = exit_code, .kill = {}});
  }
}

void Liveness::Thread::ask_to_stop(int exit_code, Time now) {
  if (early_stop_.ask(exit_code, now)) link_.send(message::Stop{exit_code});
}

void Liveness::Thread::leave() {
  link_.leave(leaves_in_haste_);
  if (role_ != Role::kMonitors) return;
  // The others are leaving too. One that fails meanwhile is still reported.
  const Time start = Clock::now();
  while (!leaves_in_haste_ && !monitor_.all_ended_but(roster_.own) && Clock::now() - start < kLastRankLimit) {
    wait_for_news();
    const Time now = Clock::now();
    hear_peers(now);
    beat_if_due(now);
    look_for_failures(now);
  }
  see_the_others_off();
}

void Liveness::Thread::see_the_others_off() {
  const auto hear_until = [this](const auto& enough) {
    for (const Time start = Clock::now(); !enough() && Clock::now() - start < kFarewell;) {
      hear_peers(Clock::now());
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  // Ranks that have only just connected must receive it too, and all close their side before this one does.
  hear_until([&] { return peers_->num_introduced() + 1 >= roster_.size(); });
  peers_->broadcast(message::Bye{});
  hear_until([&] { return peers_->num_connected() == 0; });
}

void Liveness::Thread::end_all(const message::End& end) {
  peers_->broadcast(end);
  kill_ranks(roster_, end.kill);
  this->end(end.exit_code);
}

void Liveness::Thread::end(int exit_code) {
  if (peers_) peers_->finish_sending(kFarewell);
  // Ends kernels that wait for a peer, so that the GPU is free for the next run. Aborting may itself wait for a peer.
  if (options_.device.is_cuda()) {
    parallel::no_longer_than(kAbortLimit, [this] { activity_.abort_communicators(); });
  }
  std::_Exit(exit_code);
}

}  // namespace mpzero
