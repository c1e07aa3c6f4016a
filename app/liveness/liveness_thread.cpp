#include "app/liveness/liveness_thread.hpp"

#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "app/liveness/final_report.hpp"
#include "app/liveness/meeting_stop.hpp"
#include "base/error.hpp"
#include "parallel/mpi/deadline.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

// The longest that a rank may be silent; less if --stuck_after is less.
constexpr double kSilentAfter = 60;
// A few heartbeats.
constexpr double kLeastSilence = 3;
// Turns of the thread: the longest without news, and the shortest for a monitor. What arrives in between is taken at
// once, so that the cost of a turn does not come with each message.
constexpr milliseconds kLongestTurn(100);
constexpr milliseconds kShortestTurn(10);
// How often a monitor looks at all ranks, unless something has happened.
constexpr milliseconds kLook(200);
// How often devices and communicators are asked for errors.
constexpr milliseconds kPoll(1000);
// If a turn takes longer, the thread or its machine was stopped.
constexpr milliseconds kSleep(1000);
constexpr milliseconds kAbortLimit(3000);
constexpr milliseconds kRecordLimit(3000);
// Time for the run to end once a rank has failed, even if a new monitor has to end it.
constexpr milliseconds kFailedLimit(180'000);

// What counts as silence.
double silence_limit(double stuck_after) {
  return stuck_after > 0 ? std::clamp(stuck_after, kLeastSilence, kSilentAfter) : 0;
}

// Lets the ranks meet, and ends this one if it is asked to stop meanwhile. Rank 0 is the first to say so.
RankMeeting meet_or_stop(ProcessGroup& group, const StopRequest& stop, const std::filesystem::path& checkpoint_dir) {
  // A launcher asks all ranks to stop when one has failed, and kills them a second later: that is no stop to report.
  constexpr std::chrono::seconds kFirst(2);
  constexpr std::chrono::seconds kOthers(5);
  const MeetingStop meeting_stop(stop, group.rank() == 0 ? kFirst : kOthers, [&checkpoint_dir](int exit_code) {
    report_stop(exit_code, checkpoint_dir);
    std::_Exit(exit_code);
  });
  return meet(group);
}

// As meet_or_stop(). Nothing watches the ranks yet: if one of them does not come, the others end after stuck_after
// seconds (0: never). Rank 0 is the first to say so.
RankMeeting meet_in_time(ProcessGroup& group, const StopRequest& stop, const Liveness::Options& options) {
  const double limit = options.stuck_after;
  if (limit <= 0) return meet_or_stop(group, stop, options.checkpoint_dir);
  constexpr double kPrecedence = 10;
  const double patience = limit + (group.rank() == 0 ? 0 : kPrecedence);
  const parallel::Deadline deadline(parallel::to_milliseconds(patience), [patience] {
    return fmt::format(
        "the ranks have not met for {:.0f} s after MPI has started them, so that one of them, or its machine, is "
        "stopped: "
        "check the machines of this job, or set a longer --stuck_after if MPI needs so long",
        patience);
  });
  return meet_or_stop(group, stop, options.checkpoint_dir);
}

}  // namespace

Liveness::Thread::Thread(RankMeeting meeting, const StopRequest& stop, Options options)
    : stop_(stop),
      options_(std::move(options)),
      silent_after_(silence_limit(options_.stuck_after)),
      warning_(std::move(meeting.warning)),
      roster_(std::move(meeting.roster)),
      report_facts_(report_facts(options_.checkpoint_dir, at::kCPU, roster_)),
      activity_(options_.stuck_after),
      last_turn_(Clock::now()),
      next_look_(last_turn_),
      next_poll_(last_turn_) {
  if (meeting.peers) watching_.emplace(roster_, std::move(meeting), silent_after_, Clock::now());
}

Liveness::Thread::Thread(parallel::MpiRuntime& mpi, const StopRequest& stop, const Options& options)
    : Thread(meet_in_time(mpi, stop, options), stop, options) {
  mpi_ = &mpi;
  if (roster_.own == 0) mark_earlier_reports(report_facts_);
  mpi_->record_in(&activity_.recorder().channel("control", parallel::FlightRecorder::Shows::kNothing));
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
  activity_.enter(RunPhase::kEnding);
  leaving_ = true;
  if (thread_.joinable()) thread_.join();
  // The recorder is destroyed here, MPI is not.
  mpi_->record_in(nullptr);
}

bool Liveness::Thread::overdue(const std::string& message) {
  if (!watching_) return false;
  activity_.complain(message);
  return true;
}

void Liveness::Thread::failed(const std::string& error, const std::vector<int>& culprits) {
  if (!watching_) return;
  activity_.failed(error, culprits);
  // The other thread ends the process.
  std::this_thread::sleep_for(kFailedLimit);
}

void Liveness::Thread::use_device(at::Device device) {
  if (!device.is_cuda()) return;
  chosen_gpu_ = device.index();
  // CUDA reads the environment, which the start of the network is about to change on this thread.
  adopted_.wait();
}

void Liveness::Thread::adopt_gpu() {
  if (gpu_ || chosen_gpu_ < 0) return;
  gpu_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(chosen_gpu_.load()));
  c10::cuda::set_device(gpu_->index());
  report_facts_ = report_facts(options_.checkpoint_dir, *gpu_, roster_);
  adopted_.count_down();
}

void Liveness::Thread::run() {
  last_turn_ = Clock::now();
  while (!leaving_) take_turn();
  if (watching_) leave();
}

void Liveness::Thread::take_turn() {
  wait_for_news();
  const Time now = Clock::now();
  excuse_sleep(now);
  adopt_gpu();
  if (stop_.requested() || early_stop_.asked()) handle_stop(now);
  if (watching_) take_part(now);
}

void Liveness::Thread::wait_for_news() {
  if (watching_ && watching_->watch.monitors()) std::this_thread::sleep_until(last_turn_ + kShortestTurn);
  std::vector<pollfd> wanted = {{.fd = stop_.descriptor(), .events = POLLIN, .revents = 0}};
  Time wake = Clock::now() + kLongestTurn;
  if (watching_) {
    watching_->sockets.add_to(wanted);
    wake = std::min(wake, watching_->watch.next_beat());
    if (const std::optional<Time> due = watching_->sockets.wakes_at()) wake = std::min(wake, *due);
  }
  const auto left = std::chrono::ceil<milliseconds>(wake - Clock::now());
  poll(wanted.data(), wanted.size(), static_cast<int>(std::max(left, milliseconds(0)).count()));
  if (wanted.front().revents != 0) stop_.drain();
}

void Liveness::Thread::excuse_sleep(Time now) {
  const auto turn = now - std::exchange(last_turn_, now);
  if (turn <= kSleep) return;
  const auto slept = turn - kLongestTurn;
  activity_.slept(slept, now);
  if (watching_) watching_->watch.slept(slept, now);
}

void Liveness::Thread::take_part(Time now) {
  auto& [sockets, watch] = *watching_;
  const WatchSockets::News news = sockets.hear(watch, now);
  for (const std::string& warning : news.warnings) warn(warning);
  for (const auto& [rank, stop] : news.stops) {
    if (!watch.monitors()) break;
    if (!stop.leaves_host.empty()) early_stop_.leave_host(roster_.identity(rank).host, stop.leaves_host);
    ask_to_stop(stop.exit_code, now);
    handle_stop(now);
  }
  beat_if_due(now);
  if (news.is_urgent || now >= next_look_) {
    next_look_ = now + kLook;
    watch.look(now);
  }
  if (watch.ended()) end_run(*watch.ended());
}

void Liveness::Thread::beat_if_due(Time now) {
  RankWatch& watch = watching_->watch;
  const bool has_failed = activity_.has_failed() && !watch.has_reported_error();
  if (!has_failed && now < watch.next_beat() && now < next_poll_) return;
  next_poll_ = now + kPoll;
  const RankReport own = activity_.report(now);
  const bool is_news = own.error && !watch.has_reported_error();
  if (is_news || now >= watch.next_beat()) watch.beat(own, now);
}

void Liveness::Thread::warn(const std::string& message) const {
  print_error(
      fmt::format("mpzero: warning: rank {} on {} {}.\n", roster_.own, roster_.identity(roster_.own).host, message));
}

void Liveness::Thread::record_end(std::function<void(std::string_view, std::string_view)> record) {
  const std::lock_guard lock(end_record_mutex_);
  end_record_ = std::move(record);
}

void Liveness::Thread::write_end_record(const std::string& status, const std::string& reason) {
  std::function<void(std::string_view, std::string_view)> record;
  {
    const std::lock_guard lock(end_record_mutex_);
    record = end_record_;
  }
  if (!record) return;
  // The disk, or the reader of stdout, may not respond.
  parallel::no_longer_than(kRecordLimit, [=] {
    try {
      record(status, reason);
    } catch (const std::exception& error) {
      print_error(fmt::format("mpzero: warning: the end of this run is not recorded: {}\n", error.what()));
    }
  });
}

void Liveness::Thread::end_run(const RankWatch::Ending& ending) {
  auto& [sockets, watch] = *watching_;
  if (ending.verdict) {
    const auto kept = report_failure(*ending.verdict, watch.records().records(), report_facts_);
    if (!kept) write_end_record("failed", ending.verdict->reason);
    if (!kept || kept->is_of_later_run) {
      report_ras(report_facts_, [&] { sockets.to_reporters(message::Pulse{}); });
    }
  } else if (watch.monitors()) {
    end(ending.end.exit_code);
  }
  // Also of another monitor's End: some ranks may report here instead.
  end_all(ending.end);
}

void Liveness::Thread::handle_stop(Time now) {
  if (stop_.is_immediate()) {
    ask_to_stop(kInterruptedExitCode, now);
  } else if (activity_.phase() <= RunPhase::kSetUp) {
    ask_to_stop(kStoppedExitCode, now);
  }
  if (!early_stop_.asked()) return;
  const int exit_code = early_stop_.exit_code();
  if (!watching_) {
    write_stop_report(early_stop_.left_hosts(), report_facts_);
    end(exit_code);
  }
  if (!watching_->watch.monitors()) {
    if (early_stop_.overdue(now)) {
      // The monitor may still wait for what it needs to judge another rank. This one must not look lost then.
      watching_->sockets.leave(/*with_error=*/false);
      end(exit_code);
    }
  } else if (early_stop_.settled(now) && !watching_->watch.alarmed(now)) {
    write_stop_report(early_stop_.left_hosts(), report_facts_);
    report_stop(exit_code, options_.checkpoint_dir);
    write_end_record("stopped",
                     exit_code == kInterruptedExitCode ? "interrupted twice" : "stopped before the first step");
    end_all({.exit_code = exit_code, .kill = {}});
  }
}

void Liveness::Thread::ask_to_stop(int exit_code, Time now) {
  const std::string leaves_host = stop_.is_own() ? stop_.reason() : "";
  if (!leaves_host.empty()) early_stop_.leave_host(roster_.identity(roster_.own).host, leaves_host);
  if (!early_stop_.ask(exit_code, now) || !watching_) return;
  watching_->sockets.to_monitor(message::Stop{.exit_code = exit_code, .leaves_host = leaves_host});
}

void Liveness::Thread::leave() {
  auto& [sockets, watch] = *watching_;
  if (!watch.monitors()) return sockets.leave(leaves_in_haste_);
  // The others are leaving too. One that fails or hangs meanwhile is still reported. This rank only waits for them,
  // which is no lack of progress.
  watch.hear_reporter(roster_.own, message::Bye{}, Clock::now());
  while (!leaves_in_haste_ && !watch.records().all_ended_but(roster_.own)) take_turn();
  see_the_others_off();
}

void Liveness::Thread::see_the_others_off() {
  auto& [sockets, watch] = *watching_;
  const auto hear_until = [&](const auto& enough) {
    for (const Time start = Clock::now(); !enough() && Clock::now() - start < kFarewell;) {
      sockets.hear(watch, Clock::now());
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  // Ranks that have only just connected must receive it too, and all close their side before this one does.
  hear_until([&] { return sockets.peers().num_introduced() + 1 >= roster_.size(); });
  sockets.to_reporters(message::Bye{});
  hear_until([&] { return sockets.peers().num_connected() == 0; });
}

void Liveness::Thread::end_all(const message::End& end) {
  watching_->sockets.to_reporters(end);
  for (const int rank : end.kill) kill_process(roster_.identity(rank));
  this->end(end.exit_code);
}

void Liveness::Thread::end(int exit_code) {
  if (watching_) watching_->sockets.peers().finish_sending(kFarewell);
  // Ends kernels that wait for a peer, so that the GPU is free for the next run. Aborting may itself wait for a peer.
  if (gpu_) {
    parallel::no_longer_than(kAbortLimit, [this] { activity_.abort_communicators(); });
  }
  std::_Exit(exit_code);
}

}  // namespace mpzero
